//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

func TestThreat24UsernsUnshare(t *testing.T) {
	var could map[string]string
	inNamespaces(t, &could, "unshare")
	delete(could, "unshare pid")  // the Go runtime cannot go on in such a process
	delete(could, "unshare time") // nor, before some kernel after 6.1, in this one
	all(t, could, "ok")
	inEachMode(t, func(t *testing.T, m mode) {
		all(t, call{mode: m}.attempts(t, "unshare"), "EPERM")
		// The second layer, behind the filter: this user namespace may not have one below it, nor any other kind.
		var limits map[string]string
		var paths []string
		for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
			paths = append(paths, "/proc/sys/user/max_"+kind+"_namespaces")
		}
		call{mode: m}.probe(t, &limits, append([]string{"read"}, paths...)...)
		for _, p := range paths {
			if limits[p] != "read: 0\n" {
				t.Errorf("%s: %q", p, limits[p])
			}
		}
		r := call{mode: m, words: []string{"/usr/bin/unshare", "-Ur", "true"}}.run(t)
		if r.Verdict != helper.Exited || r.Success || !strings.Contains(r.Stderr, "not permitted") {
			t.Errorf("unshare -Ur: %s, %q", r.Verdict, r.Stderr)
		}
		// No policy lifts it.
		mustRefuse(t, call{mode: m, policy: "version: 1\nsyscalls: {allow: [unshare]}\n", words: []string{"/skill/probe", "nothing"}}.run(t), "unshare")
	})
}

func TestThreat25UsernsClone(t *testing.T) {
	var could map[string]string
	inNamespaces(t, &could, "clone")
	for try, a := range could {
		if a != "ok" && !(strings.HasPrefix(try, "clone3") && a == "ENOSYS") { // a container's filter
			t.Errorf("outside, %s: %s", try, a)
		}
	}
	inEachMode(t, func(t *testing.T, m mode) {
		for try, a := range (call{mode: m}).attempts(t, "clone") {
			want := "EPERM"
			if strings.HasPrefix(try, "clone3 ") {
				want = "ENOSYS"
			}
			if a != want {
				t.Errorf("%s: %s, want %s", try, a, want)
			}
		}
	})
}

func TestThreat27NestedUsernsNftables(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		could := map[string]string{}
		m.beside(t, &could, "in-new-namespaces", "netfilter-table")
		if could["namespaces"] != "ok" || could["nft add table"] != "ok" {
			t.Logf("outside: %v", could)
		}
		all(t, call{mode: m}.attempts(t, "in-new-namespaces", "netfilter-table"), "EPERM")
		all(t, call{mode: m}.attempts(t, "netfilter-table"), "EAFNOSUPPORT")
	})
}

func TestThreat28NestedUsernsTc(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		could := map[string]string{}
		m.beside(t, &could, "in-new-namespaces", "traffic-control")
		wantAnswers(t, could, map[string]string{"namespaces": "ok", "ip address add": "ok"})
		all(t, call{mode: m}.attempts(t, "in-new-namespaces", "traffic-control"), "EPERM")
		// Nor in the namespace that the box has.
		all(t, call{mode: m}.attempts(t, "traffic-control"), "EPERM")
	})
}

func TestThreat30SetnsAny(t *testing.T) {
	var could map[string]string
	inNamespaces(t, &could, "setns")
	if could["setns /proc/self/ns/uts"] != "ok" {
		t.Errorf("outside: %v", could)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		joined := 0
		for try, a := range (call{mode: m}).attempts(t, "setns") {
			switch {
			case strings.HasPrefix(try, "setns ") && a == "EPERM":
				joined++
			case strings.HasPrefix(try, "open /proc/1/") && a == "EACCES":
			default:
				t.Errorf("%s: %s", try, a)
			}
		}
		if joined < 10 {
			t.Errorf("only %d namespaces were tried", joined)
		}
	})
}

func TestThreat31CapsAllZero(t *testing.T) {
	var could map[string]map[string]string
	inNamespaces(t, &could, "raise-capabilities")
	if strings.Trim(could["before"]["CapPrm"], "0") == "" || could["child"]["CapBnd"] == "0000000000000000" {
		t.Errorf("outside: %v", could["tries"])
	}
	inEachMode(t, func(t *testing.T, m mode) {
		var got map[string]map[string]string
		call{mode: m}.probe(t, &got, "raise-capabilities")
		one := m.oneID(t)
		for try, a := range got["tries"] {
			if a != "EPERM" && try != "drop no_new_privs" || a == "ok" {
				t.Errorf("%s: %s", try, a)
			}
		}
		for who, status := range got {
			if who == "tries" {
				continue
			}
			if who == "child as uid 0" && !one {
				if status["error"] != "EPERM" {
					t.Errorf("became uid 0: %v", status)
				}
				continue
			}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				if status[set] != "0000000000000000" {
					t.Errorf("%s: %s is %q (%s)", who, set, status[set], status["error"])
				}
			}
		}
		if len(got) != 5 {
			t.Errorf("got %v", got)
		}
	})
}

func TestThreat33MountLegacy(t *testing.T) {
	var could map[string]string
	inNamespaces(t, &could, "mount")
	wantAnswers(t, could, map[string]string{"tmpfs": "ok", "proc": "ok", "bind / on /tmp": "ok"})
	inEachMode(t, func(t *testing.T, m mode) {
		all(t, call{mode: m}.attempts(t, "mount"), "EPERM")
	})
}

func TestThreat34MountNewApi(t *testing.T) {
	var could map[string]string
	inNamespaces(t, &could, "mount-api")
	wantAnswers(t, could, map[string]string{"fsopen": "ok", "fsconfig": "ok", "fsmount": "ok", "move_mount": "ok", "open_tree": "ok"})
	inEachMode(t, func(t *testing.T, m mode) {
		all(t, call{mode: m}.attempts(t, "mount-api"), "ENOSYS")
	})
}

func TestThreat36ChrootPivot(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		wantAnswers(t, call{mode: m}.attempts(t, "chroot"), map[string]string{"mkdir": "ok", "chroot": "EPERM", "pivot_root": "EPERM", "walk up": "ok"})
	})
	var could map[string]map[string]string
	inNamespaces(t, &could, "raise-capabilities") // chroot itself would need a directory of the host's; its capability is enough
	if prm, err := strconv.ParseUint(could["before"]["CapPrm"], 16, 64); err != nil || prm&(1<<unix.CAP_SYS_CHROOT) == 0 {
		t.Errorf("outside, not even the capability for chroot is there: %v", could["before"])
	}
}

func TestThreat37DotdotOutOfBind(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		parent := m.dir(t)
		for _, dir := range []string{"shown", "shown/in", "hidden"} {
			if err := os.Mkdir(filepath.Join(parent, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, filepath.Join(parent, dir))
		}
		for _, dir := range []string{"", "hidden"} {
			m.write(t, filepath.Join(parent, dir, "secret"), "private", 0o644)
		}
		end := call{
			mode: m, policy: fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s/shown, path: /data}]}\n", parent),
			words: []string{"/skill/probe", "moved-away", "/data/in", "/data/ready"},
		}.begin(t)
		appears(t, filepath.Join(parent, "shown/ready"))
		if err := os.Rename(filepath.Join(parent, "shown/in"), filepath.Join(parent, "hidden/in")); err != nil {
			t.Fatal(err)
		}
		all(t, decoded(t, end()), "ENOENT")
		if _, err := os.Lstat(filepath.Join(parent, "hidden/made")); err == nil {
			t.Error("the box wrote beside its bind mount")
		}
	})
}

// decoded is what the probe answered in a run that was begun before.
func decoded(t *testing.T, r *helper.Result) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.ExitCode != 0 {
		t.Fatalf("%v: %s %d %v: %q %q", err, r.Verdict, r.ExitCode, r.Error, r.Stdout, r.Stderr)
	}
	return got
}

func TestThreat39PidnsSignals(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		// The mode's own user has a process on the host, which that user could kill.
		victim := m.program(t, "probe", "wait")
		pid := strconv.Itoa(victim.Process.Pid)
		got := call{mode: m}.attempts(t, "kill", pid)
		all(t, got, "ESRCH")
		all(t, call{mode: m}.attempts(t, "guess-pids"), "ok")
		wantAnswers(t, call{mode: m}.attempts(t, "signal-init"), map[string]string{"own child": "killed", "init": "ok"})
		if err := victim.Process.Signal(unix.Signal(0)); err != nil {
			t.Errorf("the user's process outside did not survive: %v", err)
		}
		var could map[string]string
		m.beside(t, &could, "kill", pid)
		if could["kill "+pid] != "ok" {
			t.Errorf("outside: %v", could)
		}
		if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("outside, the same attempt ended with %v", err)
		}
	})
}

func TestThreat40CrossSandboxUid(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		share := m.dir(t)
		bundle := m.probeBundle(t)
		c := m.command("exec", "--json", "--policy", m.file(t, "policy.yaml", fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /share}]}\n", share)),
			bundle, "--", "/skill/probe", "victim", "/share/ready")
		stdin, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		appears(t, filepath.Join(share, "ready"))
		pid := pidOf(t, "/skill/probe", "victim", "/share/ready")
		got := call{mode: m, bundle: bundle}.attempts(t, "neighbour", strconv.Itoa(pid))
		for try, a := range got {
			want := "ESRCH"
			switch {
			case strings.HasPrefix(try, "open "), strings.HasPrefix(try, "/"), try == "shmget":
				want = "ENOENT"
			case strings.HasPrefix(try, "connect "):
				want = "ECONNREFUSED"
			case strings.HasPrefix(try, "ptrace "), strings.HasPrefix(try, "process_vm_readv "):
				want = "EPERM"
			}
			if a != want {
				t.Errorf("%s: %s, want %s", try, a, want)
			}
		}
		guess := call{mode: m, bundle: bundle}.attempts(t, "guess-pids")
		all(t, guess, "ok")
		if m == asRoot {
			second := call{mode: m, bundle: bundle, stdin: "", words: []string{"/bin/sleep", "0.2"}}.begin(t)
			other := pidOf(t, "/bin/sleep", "0.2")
			a, b := ownerOf(t, pid), ownerOf(t, other)
			if a == b || a == 0 || b == 0 {
				t.Errorf("two boxes run as uid %d and %d", a, b)
			}
			second()
		}
		stdin.Close()
		text := make([]byte, 64<<10)
		n := 0
		for {
			k, err := stdout.Read(text[n:])
			n += k
			if err != nil {
				break
			}
		}
		if err := c.Wait(); err != nil {
			t.Errorf("the victim's box: %v: %s", err, text[:n])
		}
		if !strings.Contains(string(text[:n]), `{\"file\":\"private\",\"memory\":\"private\"}`) {
			t.Errorf("the victim was disturbed: %s", text[:n])
		}
	})
}

func TestThreat42Pid1SignalMask(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		// Init drops whatever the skill sends; the skill's own end still counts.
		got := call{mode: m}.attempts(t, "signal-init")
		wantAnswers(t, got, map[string]string{"init": "ok", "pidfd_open 1": "ok"})
		// The death of init, which only the host can bring about, ends the box, all of it, and the result says so.
		end := call{mode: m, words: []string{"/bin/sh", "-c", "sleep 1000 & exec sleep 1001"}}.begin(t)
		for range 400 {
			if parent := parentOf(t, pidOf(t, "sleep", "1001")); parent > 1 {
				if err := unix.Kill(parent, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if r := end(); r.Success || r.Verdict != helper.Signaled {
			t.Errorf("init was killed: %s %d", r.Verdict, r.ExitCode)
		}
		// Nothing outlives the skill's first process. leavesNothing looks on the host.
		wantAnswers(t, call{mode: m}.attempts(t, "orphans"), map[string]string{"left": "ok"})
		for _, e := range globbed(t, "/proc/[0-9]*/cmdline") {
			if line, err := os.ReadFile(e); err == nil && slices.Contains([]string{"sleep\x001000\x00", "sleep\x001001\x00"}, string(line)) {
				t.Errorf("%s is left: %q", e, line)
			}
		}
	})
}

func TestThreat43SysctlNamespaced(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, "proc-writable", "/proc/sys")
		tried, err := strconv.Atoi(got["tried"])
		delete(got, "tried")
		if err != nil || tried < 200 {
			t.Errorf("only %d settings were tried", tried)
		}
		for p, a := range got {
			t.Errorf("%s: %s", p, a)
		}
		all(t, call{mode: m}.attempts(t, "write-same", "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/sys/user/max_user_namespaces",
			"/proc/sys/kernel/hostname", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/ns_last_pid", "/proc/sys/fs/mqueue/msg_max"), "EROFS", "EACCES", "ENOENT")
	})
}
