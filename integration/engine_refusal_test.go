//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"skillbox/helper"
)

// refuses runs a skill that docker would run, and wants it refused for that reason, with its place in the manifest, before anything ran.
func (w *engineWorld) refuses(t *testing.T, lines, policy, why string) {
	t.Helper()
	r := w.engine(t, dockerSkill("entrypoint = \"ffmpeg\"\n"+lines), policy, "s", "--", "look")
	switch {
	case r.ExitCode != helper.CodeFailed || r.Error == nil || r.Stdout != "":
		t.Errorf("%s: not refused: %s, %d, %v: %s", lines, r.Verdict, r.ExitCode, r.Error, r.Stdout)
	case !strings.Contains(r.Error.Error(), why) || r.Error.File == "" && !strings.Contains(r.Error.Message, ".skill-engine.toml:"):
		t.Errorf("%s: refused for %v; want %s", lines, r.Error, why)
	}
}

// Each of these docker does as it is told. It is refused by skillbox alone, before a box is made, so one user's attempt is everybody's.
func TestAManifestThatWidensIsRefused(t *testing.T) {
	w := newEngineWorld(t, modes()[0])
	if r := w.engine(t, dockerSkill(`entrypoint = "ffmpeg"`), "", "s", "--", "look"); r.ExitCode != 0 {
		t.Fatalf("what is added below is not what is refused: %v", r.Error)
	}
	for lines, why := range map[string]string{
		"privileged = true":                        "s.docker.privileged: is refused: it gives the skill every right",
		"cap_add = [\"SYS_ADMIN\"]":                "cap_add: is refused",
		"devices = [\"/dev/sda\"]":                 "devices: is refused",
		"network_mode = \"host\"":                  "network_mode: is refused",
		"pid = \"host\"":                           "pid: is refused",
		"network = \"host\"":                       "the host's network",
		"network = \"container:db\"":               "no networks of containers",
		"network = \"my-net\"":                     "no networks of containers",
		"gpus = \"0,1\"":                           "all or none",
		"platform = \"linux/s390x\"":               "not this machine's platform",
		"platform = \"windows/amd64\"":             "not this machine's platform",
		"working_dir = \"work\"":                   "not an absolute path",
		"memory = \"0\"":                           "0 is no limit to docker",
		"memory = \"-1\"":                          "not a size",
		"memory = \"1e30g\"":                       "not a size",
		"cpus = \"0\"":                             "0 is no limit to docker",
		"cpus = \"NaN\"":                           "not a number of processors",
		"environment = [\"LD_PRELOAD=/x.so\"]":     "LD_PRELOAD",
		"environment = [\"A B=c\"]":                "not the name of a variable",
		"environment = [\"${WIDE}=c\"]":            "not the name of a variable",
		"environment = [\"A=${}\"]":                "is not a variable",
		"environment = [\"A=${UNSET}\"]":           "UNSET is not set",
		"environment = [\"A=${UNSET:?say it}\"]":   "UNSET is not set: say it",
		"environment = [\"A=${UNSET:-${HOME}}\"]":  "within another's default",
		"environment = [\"A=${HOME\"]":             "not closed",
		"environment = [\"A=${HOME:=x}\"]":         "is not a variable",
		"volumes = [\"${UNSET}:/data\"]":           "UNSET is not set",
		"volumes = [\"${COLON}:/data:ro\"]":        "holds a colon",
		"volumes = [\"/usr/share:${COLON}\"]":      "holds a colon",
		"volumes = [\"${LINE}:/data\"]":            "control character",
		"volumes = [\"/usr/share:/data:${MODE}\"]": "volume option \"${MODE}\"",
	} {
		w.env = append(w.env[:2:2], "WIDE=A", "COLON=/usr/share:/etc", "LINE=/usr/share\n/etc", "MODE=ro", "HOME=/nonexistent")
		w.refuses(t, lines, "", why)
	}
	for args, why := range map[string]string{
		`"--privileged"`:                           "--privileged is refused",
		`"--privileged=true"`:                      "--privileged is refused",
		`"--privileged=1"`:                         "--privileged is refused",
		`"--privileged=T"`:                         "--privileged is refused",
		`"-i", "--privileged"`:                     "--privileged is refused",
		`"--cap-add", "SYS_ADMIN"`:                 "--cap-add is refused",
		`"--cap-add=ALL"`:                          "--cap-add is refused",
		`"--security-opt", "seccomp=unconfined"`:   "--security-opt is refused",
		`"--security-opt=apparmor=unconfined"`:     "--security-opt is refused",
		`"--security-opt=no-new-privileges:false"`: "--security-opt is refused",
		`"--device", "/dev/sda"`:                   "--device is refused",
		`"--device-cgroup-rule=a *:* rwm"`:         "--device-cgroup-rule is refused",
		`"--network", "host"`:                      "--network is refused",
		`"--net=host"`:                             "--net is refused",
		`"--pid=host"`:                             "--pid is refused",
		`"--ipc", "host"`:                          "--ipc is refused",
		`"--uts=host"`:                             "--uts is refused",
		`"--userns=host"`:                          "--userns is refused",
		`"--cgroupns=host"`:                        "--cgroupns is refused",
		`"--cgroup-parent=/"`:                      "--cgroup-parent is refused",
		`"-v", "/:/host"`:                          "--volume is refused",
		`"-v/:/host"`:                              "--volume is refused",
		`"-iv", "/:/host"`:                         "--volume is refused",
		`"-itv=/:/host"`:                           "--tty is refused",
		`"--volume=/:/host"`:                       "--volume is refused",
		`"--mount", "type=bind,src=/,dst=/host"`:   "--mount is refused",
		`"--volumes-from=other"`:                   "--volumes-from is refused",
		`"--tmpfs=/x:exec"`:                        "--tmpfs is refused",
		`"--group-add=docker"`:                     "--group-add is refused",
		`"--sysctl=net.ipv4.ip_forward=1"`:         "--sysctl is refused",
		`"--ulimit=nofile=1000000"`:                "--ulimit is refused",
		`"--oom-kill-disable"`:                     "--oom-kill-disable is refused",
		`"--oom-score-adj=-1000"`:                  "--oom-score-adj is refused",
		`"--runtime=runc"`:                         "--runtime is refused",
		`"--gpus=all"`:                             "--gpus is refused",
		`"-p", "80:80"`:                            "--publish is refused",
		`"-P"`:                                     "--publish-all is refused",
		`"--add-host=example.com:10.0.0.1"`:        "--add-host is refused",
		`"--dns=10.0.0.1"`:                         "--dns is refused",
		`"--env-file=/etc/shadow"`:                 "--env-file is refused",
		`"--cidfile=/etc/cron.d/x"`:                "--cidfile is refused",
		`"--entrypoint=sh"`:                        "--entrypoint is refused",
		`"-w", "/"`:                                "--workdir is refused",
		`"-u", "0"`:                                "--user is refused",
		`"-d"`:                                     "--detach is refused",
		`"--restart=always"`:                       "--restart is refused",
		`"--read-only=false"`:                      "--read-only is refused",
		`"--shm-size=1t"`:                          "--shm-size is refused",
		`"--memory-swap=-1"`:                       "--memory-swap is refused",
		`"--memory=0"`:                             "0 is no limit",
		`"--pids-limit=-1"`:                        "not a limit",
		`"--no-such-option"`:                       "none of the options that are known to be harmless",
		`"--Privileged"`:                           "--Privileged is refused",
		`"-Z"`:                                     "-Z is not known",
		`"other/image"`:                            "docker would take it for the image",
		`"--"`:                                     "docker would take it for the image",
		`"--rm", "other/image"`:                    "docker would take it for the image",
		`"--name", "--privileged", "image"`:        "docker would take it for the image",
		`"--env"`:                                  "needs a value",
		`"-e", "LD_PRELOAD=/x.so"`:                 "LD_PRELOAD",
	} {
		w.refuses(t, "extra_args = ["+args+"]", "", why)
	}
	for ref, why := range map[string]string{
		"/var/lib/images/x": "not the name of an image", "./image": "not the name of an image", "../x": "not the name of an image", "dir:/": "not the name of an image",
		"oci-archive:/x.tar": "not the name of an image", "": "not the name of an image", "a b": "not the name of an image", "x\\n": "control character", "--privileged": "not the name of an image",
		"docker.io/x:tag@sha256:abc": "not the name of an image", "${UNSET:-/x}": "not the name of an image", "UPPER/CASE": "not the name of an image",
	} {
		manifest := strings.Replace(dockerSkill(""), "image = \"linuxserver/ffmpeg:latest\"", `image = "`+ref+`"`, 1)
		if r := w.engine(t, manifest, "", "s"); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), why) {
			t.Errorf("image %q: %v, want %s", ref, r.Error, why)
		}
	}
}

func TestHarmlessArgumentsOfDockerAreTaken(t *testing.T) {
	w := newEngineWorld(t, modes()[0])
	r := w.engine(t, dockerSkill(`entrypoint = "ffmpeg"
extra_args = ["--rm", "--init", "-i", "--read-only", "--privileged=false", "--cap-drop", "ALL", "--security-opt=no-new-privileges", "--network=none", "--pull=never",
  "--label", "a=b", "--name=x", "--stop-timeout", "5", "--no-healthcheck", "-q", "--log-driver=none", "-eA=1"]
user = "root"
rm = false
read_only = false
platform = "linux/`+runtime.GOARCH+`"
surprise = 1`), "", "s", "--", "look")
	got := lookedOf(t, r)
	warnings := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"docker.user: does nothing", "docker.rm: does nothing", "docker.read_only: does nothing", "docker.surprise: is not known here"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning %s in %s", want, warnings)
		}
	}
	if text := strings.Join(got.Env, " "); !strings.Contains(text, "A=1") {
		t.Errorf("no A=1 in %s", text)
	}
}

// A volume is what it leads to: links, dots and doubled slashes hide nothing.
func TestAVolumeOverWhatIsNotTheSkillsIsRefused(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		at := func(name string) string { return filepath.Join(w.dir, name) }
		for name, target := range map[string]string{"root": "/", "etc": "/etc", "etc2": "etc", "proc": "/proc/self/root", "run": "/var/run", "sock": "engine/docker.sock"} {
			if err := os.Symlink(target, at(name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"engine", "home", "home/.ssh", "home/sub", "ok"} {
			if err := os.Mkdir(at(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, at(dir))
		}
		listenAt(t, at("engine/docker.sock"))
		w.env = append(w.env, "HOME="+at("home"), "XDG_CACHE_HOME="+at("cache"))
		if got := lookedOf(t, w.engine(t, dockerSkill(`volumes = ["`+at("ok")+`:/data", "/usr/share/doc:/doc:ro"]`), "", "s", "--", "look", "/data", "/doc")); got.Paths["/data"] == "ENOENT" || got.Paths["/doc"] == "ENOENT" {
			t.Fatalf("a volume that is the caller's own: %q", got.Paths)
		}
		for host, why := range map[string]string{
			"/": "the whole host", "//": "the whole host", "/.": "the whole host", at("root"): "it leads to /, and it is the whole host", "/usr/..": "the whole host",
			at("proc"): "the whole host", "/etc": "may not be shown", "/usr/../etc": "may not be shown", at("etc"): "may not be shown", at("etc2"): "may not be shown",
			"/etc/ssh": "", "/etc/shadow": "may not be shown", "/root": "may not be shown", "/proc": "may not be shown", "/proc/self/root/etc": "may not be shown", "/sys": "may not be shown", "/dev": "may not be shown",
			"/home": "may not be shown", "/var": "may not be shown", "/var/run": "may not be shown", "/run": "may not be shown", at("run"): "may not be shown", "/tmp": "may not be shown", "/boot": "",
			"/var/log": "may not be shown", "/usr": "host's system", "/usr/bin": "host's system",
			at("home"): "caller's home", at(""): "caller's home", at("home/.ssh"): ".ssh holds credentials", at("home/sub/../.ssh"): ".ssh holds credentials",
			at("engine/docker.sock"): "door to a service", at("sock"): "door to a service", at("engine"): "door to a service", at("engine/"): "door to a service", at("engine/../engine//docker.sock"): "door to a service",
			"/dev/null": "neither a file nor a directory", at("gone"): "no such file or directory",
			"./ok": "is relative", "ok": "is relative", "data": "name of a volume", "~/work": "~ is not expanded", "": "a path is empty",
		} {
			if _, err := os.Lstat(host); why == "" && err != nil {
				continue // not on this machine
			}
			for _, mode := range []string{"", ":ro"} {
				if mode == ":ro" && strings.Contains(why, "host's system") {
					continue
				}
				w.refuses(t, `volumes = ["`+host+":/data"+mode+`"]`, "", why)
				if m != asRoot || why == "" {
					break // the same check
				}
			}
		}
		for volume, why := range map[string]string{
			at("ok"): "is not host:container", "/data": "is not host:container", at("ok") + ":data": "not an absolute path", at("ok") + ":/etc": "skillbox fills /etc itself", at("ok") + ":/": "taken",
			at("ok") + ":/data:rshared": "volume option", at("ok") + ":/data:ro,Z": "volume option", at("ok") + ":/data:ro:x": "is not host:container", at("ok") + ":/proc/x": "taken", at("ok") + ":/data/../etc": "taken",
		} {
			w.refuses(t, `volumes = ["`+volume+`"]`, "", why)
		}
		w.refuses(t, fmt.Sprintf("volumes = [%q, %q]", at("ok")+":/a", at("ok")+":/a/b"), "", "overlap")
	})
}

// A native skill's directory is shown as its bundle, and is a path of the host's as those of volumes are.
func TestASourceOverWhatIsNotTheSkillsIsRefused(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := &engineWorld{mode: m, dir: m.dir(t)}
		at := func(name string) string { return filepath.Join(w.dir, name) }
		for _, dir := range []string{"ok", "home", "home/.ssh", "home/ok", "engine"} {
			if err := os.Mkdir(at(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, at(dir))
		}
		m.write(t, at("home/.ssh/id"), "PRIVATE KEY", 0o600)
		for name, target := range map[string]string{"keys": "home/.ssh", "root": "/", "conf": "ok/../keys"} {
			if err := os.Symlink(target, at(name)); err != nil {
				t.Fatal(err)
			}
		}
		listenAt(t, at("engine/docker.sock"))
		w.env = []string{"HOME=" + at("home")}
		list := func(source string) *helper.Result {
			m.write(t, at(".skill-engine.toml"), "[skills.ls]\nruntime = \"native\"\nsource = \""+source+"\"\n", 0o644)
			return w.exec(t, "--json", "--manifest", at(".skill-engine.toml"), "ls", "--", "/skill")
		}
		for source, why := range map[string]string{
			"./home/.ssh": ".ssh holds credentials", at("home/.ssh"): ".ssh holds credentials", "ok/../home//.ssh/": ".ssh holds credentials", "keys": ".ssh holds credentials", "conf": ".ssh holds credentials",
			"/etc": "may not be shown", "/usr/../etc": "may not be shown", "/etc/ssl": "may not be shown", "/": "the whole host", "root": "the whole host", "root/etc": "may not be shown", "/proc/self": "may not be shown",
			"/tmp": "may not be shown", "/var/log": "may not be shown", "home": "caller's home", ".": "caller's home", "engine": "door to a service", "gone": "no such file",
		} {
			r := list(source)
			if r.ExitCode != helper.CodeFailed || r.Error == nil || r.Stdout != "" || !strings.Contains(r.Error.Error(), ".skill-engine.toml:3:10: ") || !strings.Contains(r.Error.Error(), why) {
				t.Errorf("%s: %d, %v: %q; want %s", source, r.ExitCode, r.Error, r.Stdout, why)
			}
		}
		for _, source := range []string{"ok", "home/ok"} {
			if r := list(source); r.ExitCode != 0 {
				t.Errorf("%s: %d, %v", source, r.ExitCode, r.Error)
			}
		}
	})
}

// A native skill writes what its instance names, which is not the host's system.
func TestANativeSkillMayNotWriteTheHostsSystem(t *testing.T) {
	m := modes()[0]
	w := &engineWorld{mode: m, dir: m.dir(t)}
	if err := os.Mkdir(filepath.Join(w.dir, "skill"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/opt", filepath.Join(w.dir, "mine")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.dir, ".skill-engine.toml")
	for _, path := range []string{"/opt", "/srv", "/mnt", "/media", "/snap", "/nix", "/boot", "/usr", "/usr/share", "/opt/../srv/", "mine"} {
		if _, err := os.Stat(path); filepath.IsAbs(path) && err != nil {
			continue // not on this machine
		}
		m.write(t, file, "[skills.sh]\nruntime = \"native\"\nsource = \"skill\"\n[skills.sh.instances.default]\ncapabilities.allowed_paths = [\""+path+"\"]\n", 0o644)
		r := w.exec(t, "--json", "--manifest", file, "sh", "--", "-c", "touch "+path+"/.skillbox-made; rm "+path+"/.skillbox-made && echo written")
		if r.ExitCode != helper.CodeFailed || r.Error == nil || strings.Contains(r.Stdout, "written") || !strings.Contains(r.Error.Error(), ".skill-engine.toml:5:") {
			t.Errorf("%s: %d, %v: %s", path, r.ExitCode, r.Error, r.Stdout)
		}
	}
}

// Who may write the file that says what a run may do, or make its name lead elsewhere, says it for the next run.
func TestASkillMayNotWriteTheFilesThatItIsRunBy(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := &engineWorld{mode: m, dir: m.dir(t)}
		at := func(name string) string { return filepath.Join(w.dir, name) }
		for _, dir := range []string{"skill", "data", "links", "away"} {
			if err := os.Mkdir(at(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, at(dir))
		}
		for name, target := range map[string]string{"links/up.toml": "../w.toml", "data/out.toml": "../away/w.toml", "links/dir": "../data", "links/up.yaml": "../data/policy.yaml", "data/away": "../away"} {
			if err := os.Symlink(target, at(name)); err != nil {
				t.Fatal(err)
			}
		}
		native := func(name, allowed string) {
			m.write(t, at(name), "[skills.sh]\nsource = \""+at("skill")+"\"\nruntime = \"native\"\n[skills.sh.instances.default]\ncapabilities.allowed_paths = [\""+allowed+"\"]\n", 0o644)
		}
		const spoil = "for f in $(find /data -name w.toml -o -name '*.yaml'); do echo '# spoilt' >>$f; done; rm -f /data/data/out.toml"
		for _, c := range []struct{ manifest, file, allowed string }{
			{"w.toml", "w.toml", "."},
			{"./w.toml", "w.toml", w.dir},
			{"skill/../w.toml", "w.toml", "."},
			{at("w.toml"), "w.toml", "."},
			{"w.toml", "w.toml", at("w.toml")},
			{"w.toml", "w.toml", "skill/../"},
			{"links/up.toml", "w.toml", w.dir},
			{"data/out.toml", "away/w.toml", at("data")},
			{"links/dir/out.toml", "away/w.toml", at("away")},
			{"links/dir/out.toml", "away/w.toml", at("links")},
			{"links/dir/away/w.toml", "away/w.toml", at("data")},
		} {
			native(c.file, c.allowed)
			r := w.exec(t, "--json", "--manifest", c.manifest, "sh", "--", "-c", spoil)
			text, err := os.ReadFile(at(c.file))
			if err != nil || strings.Contains(string(text), "spoilt") {
				t.Errorf("%s was written by its skill: %v", c.manifest, err)
			}
			if r.ExitCode != helper.CodeFailed || r.Error == nil || !strings.Contains(r.Error.Error(), "this policy file itself") || !strings.Contains(r.Error.Error(), c.manifest) {
				t.Errorf("%s with %s: %d, %v", c.manifest, c.allowed, r.ExitCode, r.Error)
			}
		}
		native("w.toml", "data")
		if r := w.exec(t, "--json", "--manifest", "w.toml", "sh", "--", "-c", "echo x >/data/data/made"); r.ExitCode != 0 {
			t.Errorf("a directory beside the manifest: %d, %v: %s", r.ExitCode, r.Error, r.Stderr)
		}
		// The policy of a bundle, and the one above a manifest.
		for _, name := range []string{"data/policy.yaml", "./data/policy.yaml", "links/up.yaml", "links/dir/policy.yaml", at("data/policy.yaml")} {
			m.write(t, at("data/policy.yaml"), "version: 1\nfilesystem: {write: [{host: "+at("data")+", path: /data}]}\n", 0o644)
			for _, args := range [][]string{{"--policy", name, "skill"}, {"--policy", name, "--manifest", "w.toml", "sh"}} {
				r := w.exec(t, append(append([]string{"--json"}, args...), "--", "/bin/sh", "-c", spoil)...)
				text, err := os.ReadFile(at("data/policy.yaml"))
				if err != nil || strings.Contains(string(text), "spoilt") || r.ExitCode != helper.CodeFailed || r.Error == nil || !strings.Contains(r.Error.Error(), "this policy file itself") {
					t.Errorf("%q: %d, %v: %v", args, r.ExitCode, r.Error, err)
				}
			}
		}
		m.write(t, at("away/policy.yaml"), "version: 1\nfilesystem: {write: [{host: "+at("data")+", path: /data}]}\n", 0o644)
		if r := w.exec(t, "--json", "--policy", "away/policy.yaml", "skill", "--", "/bin/sh", "-c", "echo x >/data/made"); r.ExitCode != 0 {
			t.Errorf("a policy kept elsewhere: %d, %v: %s", r.ExitCode, r.Error, r.Stderr)
		}
	})
}

// What the policy lets be passed is a variable, not a name under which any other comes in.
func TestAVariableUnderAnothersNameIsRefused(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		w.env = append(w.env, "KEY=s3cr3t", "REGION=eu")
		const policy = "version: 1\nenv: {pass: [REGION, SKILL_REGION]}\n"
		for _, lines := range []string{
			`environment = ["REGION=${KEY}"]`, `environment = ["REGION=${REGION}-${KEY}"]`, `environment = ["REGION=${KEY:-d}"]`, `extra_args = ["-eREGION=${KEY}"]`, `volumes = ["${SKILL_WORKDIR}:/data/${KEY}"]`,
			"[skills.s.instances.default]\nenv.REGION = \"${KEY}\"", "[skills.s.instances.default]\nconfig.region = \"${KEY}\"", "[defaults]\nenv.REGION = \"${KEY}\"",
		} {
			w.refuses(t, lines, policy, `env.pass: the value of "KEY" is not passed`)
			if r := w.engine(t, dockerSkill("entrypoint = \"ffmpeg\"\n"+lines), "", "s", "--", "look", "/data"); r.ExitCode != 0 {
				t.Errorf("%s: refused where nobody says what may be passed: %v", lines, r.Error)
			}
		}
		got := lookedOf(t, w.engine(t, dockerSkill("entrypoint = \"ffmpeg\"\n"+`environment = ["REGION", "SKILL_REGION=${REGION}"]`), policy, "s", "--", "look"))
		if text := strings.Join(got.Env, " "); !strings.Contains(text, " REGION=eu") || !strings.Contains(text, "SKILL_REGION=eu") {
			t.Errorf("what the policy passes is not there: %s", text)
		}
		if os.Getuid() == 0 {
			hostSays(t, "env: {pass: [REGION]}\n")
			w.refuses(t, `environment = ["REGION=${KEY}"]`, "", `env.pass: the value of "KEY" is not passed`)
		}
	})
}

// The operator's policy is above the manifest, and so is the host's.
func TestAManifestStaysBelowThePolicy(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		for _, dir := range []string{"in", "out"} {
			if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, filepath.Join(w.dir, dir))
		}
		within := "filesystem: {read: [{host: " + w.dir + "/in, path: /p}], write: [{host: " + w.dir + "/out, path: /q}]}\n"
		for lines, policy := range map[string]string{
			`volumes = ["${SKILL_WORKDIR}/in:/data:ro"]`: within, `volumes = ["${SKILL_WORKDIR}/out:/data"]`: within, `memory = "64m"`: "resources: {memory: 64Mi}\n", "": "resources: {named: false}\n",
			"cpus = \"0.5\"\nmemory = \"1g\"": "resources: {named: true}\n",
		} {
			got := lookedOf(t, w.engine(t, dockerSkill("entrypoint = \"ffmpeg\"\n"+lines), bestEffort+policy, "s", "--", "look", "/data", "/p"))
			if strings.Contains(lines, "volumes") && got.Paths["/data"] == "ENOENT" || got.Paths["/p"] != "ENOENT" {
				t.Errorf("%s below %s: %q", lines, policy, got.Paths)
			}
		}
		for lines, why := range map[string][2]string{
			`volumes = ["${SKILL_WORKDIR}/in:/data"]`:  {within, "permits what lies beneath " + w.dir + "/out"},
			`volumes = ["/usr/share:/data:ro"]`:        {within, "not permitted"},
			`memory = "64m"`:                           {"resources: {memory: 63Mi}\n", "permits at most 63Mi"},
			`cpus = "2"`:                               {"resources: {cpu: 1}\n", "permits at most 1"},
			`extra_args = ["--pids-limit", "65"]`:      {"resources: {pids: 64}\n", "permits at most 64"},
			`working_dir = "/"`:                        {"rootfs: {base: host}\n", "permits host"},
			`gpus = "all"`:                             {"", "GPUs are asked for, and no policy grants them"},
			"gpus = \"all\"\nworking_dir = \"/\"":      {"devices: {gpus: none}\n", "GPUs are asked for"},
			`network = "bridge"`:                       {"", "no policy says what may be reached"},
			`entrypoint = "ffmpeg"` + " # no limits":   {"resources: {named: true}\n", "nobody names this limit"},
			`memory = "1g"` + " # and nothing of cpus": {"resources: {named: true}\n", "resources.cpu: nobody names this limit"},
		} {
			lines := strings.TrimPrefix(lines, `entrypoint = "ffmpeg"`)
			r := w.engine(t, dockerSkill("entrypoint = \"ffmpeg\"\n"+lines), bestEffort+why[0], "s", "--", "look")
			text := ""
			if r.Error != nil {
				text = r.Error.Error() + " " + r.Error.Hint
			}
			if r.ExitCode != helper.CodeFailed || !strings.Contains(text, why[1]) {
				t.Errorf("%s below %q: %s, %s; want %s", lines, why[0], r.Verdict, text, why[1])
			}
		}
	})
}

func TestAManifestThatIsNotOneIsRefused(t *testing.T) {
	m := modes()[0]
	w := &engineWorld{mode: m, dir: m.dir(t)}
	for text, why := range map[string]string{
		"[skills.s]\nsource = \"docker:a\"\nsource = \"docker:b\"\n": ":3:", "[skills.s]\nsource = \"x\"\n[skills.s]\n": ":3:",
		"skills = 1": "must be a table, not a number", "[skills.s]\nsource = 1": "must be text, not a number", "[skills.s]\nruntime = \"docker\"": "a skill needs a source",
		"[skills.s]\nsource = \"docker:a\"\nruntime = \"podman\"": "\"podman\" is not a runtime", "version = \"2\"": "version \"2\" is not known", "[[skills]]\nx = 1": "must be a table, not a list",
		"[skills.s]\nsource = \"docker:a\"\ndocker.volumes = \"/:/x\"": "must be a list of texts", "[skills.s]\nsource = \"a\"\ndocker.volumes = [1]": "docker.volumes[0]: must be text",
		"[skills.s]\nsource = \"a\"\ndocker.rm = \"no\"": "must be true or false", "x = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "deep", strings.Repeat("a.", 40000) + "b = 1": "deep",
		"# " + strings.Repeat("x", 300<<10): "larger than 256 KiB", "a = \"\xff\"": "UTF-8", "{": "not TOML",
	} {
		r := w.engine(t, text, "", "s")
		if r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), why) || !strings.Contains(r.Error.Error(), ".skill-engine.toml:") {
			t.Errorf("%.60q: %v, want %s", text, r.Error, why)
		}
	}
	file := w.file(t, "m.toml", dockerSkill(""))
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if r := w.exec(t, "--json", "--manifest", file, "s"); !strings.Contains(r.Error.Error(), "nobody's word") {
		t.Errorf("a manifest that everybody may write: %v", r.Error)
	}
}
