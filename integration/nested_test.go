//go:build linux

package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/doctor"
	"skillbox/helper"
)

// nestable are the containers in which boxes can be made. docs/operators.md says how an engine is asked for each.
func nestable() map[string]container {
	podman := container{UID: 1000, GID: 1000, Unmasked: true, Filter: "podman", Hostname: "server"}
	bare, root := podman, podman
	bare.NoNewPrivs = true
	root.UID, root.GID = 0, 0
	// What podman leaves to root, of which SETFCAP counts.
	root.Caps = []int{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETFCAP, unix.CAP_SETGID,
		unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SYS_CHROOT,
	}
	return map[string]container{"a user with no_new_privs and no capability": bare, "root without CAP_SYS_ADMIN": root}
}

// Everything is done in one container: its first process is the shell, with whose end all else ends.
const nestedScript = `set -e
mkdir -m 700 /home/run /home/b
echo 1 | SKILLBOX_NO_DAEMON=1 skillbox exec /home/b -- cat
for n in 2 3; do echo $n | skillbox exec --mode user /home/b -- cat; done
id=$(skillbox session start /home/b)
skillbox session exec $id -- sh -c 'echo 4 > /tmp/state'
skillbox session exec $id -- cat /tmp/state
skillbox session stop $id
skillbox exec --json /home/b -- sh -c 'cat /etc/hostname /proc/sys/kernel/hostname; id -u; ls /proc | grep -c "^[0-9]"'
`

func TestNestedCallsServicesAndSessions(t *testing.T) {
	for name, c := range nestable() {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			out, errs, code := c.run(t, nestedScript)
			before, envelope, ok := strings.Cut(out, "4\n")
			if code != 0 || !ok || before != "1\n2\n3\n" {
				t.Fatalf("exit %d: %s%s", code, out, errs)
			}
			var r helper.Result
			if err := json.Unmarshal([]byte(envelope), &r); err != nil {
				t.Fatalf("%v: %s", err, envelope)
			}
			if r.Stdout != "server\nserver\n0\n4\n" { // init, the shell, ls and grep
				t.Errorf("%q", r.Stdout)
			}
			if r.Sandbox.Mode != "rootless" || !strings.HasSuffix(r.Sandbox.Layers["user"], "the caller's only id") || !strings.HasPrefix(r.Sandbox.Layers["memory"], "watchdog") {
				t.Errorf("%s, %v", r.Sandbox.Mode, r.Sandbox.Layers)
			}
		})
	}
}

// doctor is skillbox doctor in a container.
func (c container) doctor(t *testing.T) *doctor.Report {
	t.Helper()
	out, errs, _ := c.run(t, "mkdir -m 700 /home/run && skillbox doctor --json")
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return &r
}

func TestNestedDoctorFindsItWorking(t *testing.T) {
	for name, c := range nestable() {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			r := c.doctor(t)
			if !r.Works() || r.Modes["rootless"].Detail != "with a single id" {
				t.Errorf("%+v", r.Findings)
			}
			for what, says := range map[string]string{"sub-ids": "the caller's id alone", "cgroups": "/sys/fs/cgroup is read-only here"} {
				if f := finding(t, r, what); f.Status != doctor.Warn || !strings.Contains(f.Detail+f.Remedy, says) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// In a container a box's connections are captured as elsewhere, and dialled from the container's network.
func TestNestedEgressIsWhatThePolicyNames(t *testing.T) {
	const script = `set -e
mkdir -m 700 /home/run
mkdir /home/b
cat > /home/serve.py <<-END
	import socket, sys
	s = socket.create_server(("` + containerAddress + `", 8080))
	open("/home/ready", "w").close()
	while True:
	    s.accept()[0].sendall(b"hello")
END
cat > /home/b/main.py <<-END
	import socket
	for port in 8080, 8081:
	    try:
	        print(socket.create_connection(("` + containerAddress + `", port), 10).recv(5).decode())
	    except OSError as e:
	        print(e.strerror)
END
cat > /home/policy.yaml <<-END
	version: 1
	network: {egress: [{cidrs: [` + containerAddress + `/32], ports: [8080]}]}
END
/usr/bin/python3 /home/serve.py &
while [ ! -e /home/ready ]; do sleep 0.05; done
skillbox exec --policy /home/policy.yaml /home/b -- python3 main.py
`
	leavesNothing(t)
	out, errs, code := nestable()["a user with no_new_privs and no capability"].run(t, script)
	if code != 0 || out != "hello\nConnection refused\n" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestNestedWhereItCannotWorkIsRefusedByName(t *testing.T) {
	user := container{UID: 1000, GID: 1000, Unmasked: true, Filter: "podman", Hostname: "server"}
	masked, docker, named, root := user, user, user, user
	masked.Unmasked = false
	docker.Filter = "docker"
	named.Hostname = ""
	root.UID, root.GID = 0, 0
	for name, c := range map[string]struct {
		container
		finding, says, remedy string
		exec                  []string // words of skillbox exec's own error
	}{
		"a masked /proc":          {masked, "fresh /proc", "masks a part of /proc", "podman run --security-opt unmask=ALL …", []string{"/proc", "unmasked", "skillbox doctor"}},
		"no user namespaces":      {docker, "user namespaces", "refuses them", "--security-opt seccomp=unconfined --security-opt unmask=ALL", []string{"user namespaces", "skillbox doctor"}},
		"a name that tells":       {named, "a real box", "the skill would see " + containerName, "--hostname server", []string{containerName, "sethostname", "--hostname server", "enforcement: best-effort"}},
		"root with no capability": {root, "user namespaces", "CAP_SETFCAP", "--user 1000:1000", []string{"CAP_SETFCAP", "--user 1000:1000"}},
	} {
		t.Run(name, func(t *testing.T) {
			leavesNothing(t)
			r := c.doctor(t)
			if f := finding(t, r, c.finding); r.Works() || f.Status != doctor.Fail || !strings.Contains(f.Detail, c.says) || !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("%v: %+v", r.Works(), f)
			}
			out, errs, code := c.run(t, "mkdir -m 700 /home/run /home/b; skillbox exec /home/b -- true")
			for _, word := range c.exec {
				if code != helper.CodeFailed || out != "" || !strings.Contains(errs, word) {
					t.Errorf("exit %d, without %q: %s%s", code, word, out, errs)
				}
			}
		})
	}
}

// What a container cannot give is refused when a policy names it, and told when best-effort is enough.
func TestNestedLimitsAreRefusedOrToldAsThePolicySays(t *testing.T) {
	c := container{UID: 1000, GID: 1000, Unmasked: true, Filter: "podman"} // its own name, too
	const script = `mkdir -m 700 /home/run /home/b
printf 'version: 1\nenforcement: %s\nresources: {memory: 64Mi}\n' strict > /home/strict.yaml
printf 'version: 1\nenforcement: %s\nresources: {memory: 64Mi}\n' best-effort > /home/effort.yaml
skillbox exec --policy /home/strict.yaml /home/b -- true; echo $?
skillbox exec --json --policy /home/effort.yaml /home/b -- hostname`
	leavesNothing(t)
	out, errs, code := c.run(t, script)
	first, envelope, _ := strings.Cut(out, "\n")
	if first != "125" || !strings.Contains(errs, "resources.memory: this limit needs a cgroup: /sys/fs/cgroup is read-only here") {
		t.Errorf("%s, %s", first, errs)
	}
	var r helper.Result
	if err := json.Unmarshal([]byte(envelope), &r); err != nil || code != 0 {
		t.Fatalf("exit %d: %v: %s%s", code, err, envelope, errs)
	}
	if r.Stdout != containerName+"\n" || !said(&r, "resources.memory is held by watchdog and RLIMIT_DATA (best-effort)") || !said(&r, "the skill would see "+containerName) {
		t.Errorf("%s, %q", r.Stdout, r.Warnings)
	}
}
