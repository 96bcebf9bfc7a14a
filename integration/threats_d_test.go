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

	"golang.org/x/sys/unix"
)

// theMachinesHandles are files that act on the whole machine, or make the kernel run a program of somebody's choice.
var theMachinesHandles = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd",
	"/proc/sys/kernel/core_pipe_limit", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/fs/binfmt_misc/status", "/proc/sys/vm/panic_on_oom",
	"/proc/sys/kernel/sysrq", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/usermodehelper/bset",
	"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/kexec_crash_size", "/sys/module/kernel/parameters/panic",
}

func TestThreat81Sysrq(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		want := []string{"EACCES", "EROFS"}
		if _, err := os.Stat("/proc/sysrq-trigger"); err != nil {
			want = []string{"ENOENT", "EROFS"}
		}
		all(t, call{mode: m}.attempts(t, "write-same", "/proc/sysrq-trigger"), want...)
	})
}

func TestThreat82CorePattern(t *testing.T) {
	before, err := os.ReadFile(theMachinesHandles[0])
	if err != nil {
		t.Fatal(err)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, append([]string{"write-same"}, theMachinesHandles...)...)
		for p, a := range got {
			if a == "EROFS" || a == "EACCES" {
				continue
			}
			// A box has no /sys, and a /proc of its own, without what systemd mounts there as soon as somebody looks.
			if a == "ENOENT" && (strings.HasPrefix(p, "/sys/") || strings.HasPrefix(p, "/proc/sys/fs/binfmt_misc/")) {
				continue
			}
			if _, err := os.Stat(p); a == "ENOENT" && err != nil {
				continue
			}
			t.Errorf("%s: %s", p, a)
		}
		// Nothing else of /proc that is not a process's own can be opened for writing.
		others := call{mode: m}.attempts(t, "proc-writable", "/proc")
		delete(others, "tried")
		for p, a := range others {
			// Whoever may read how busy the machine is may also ask to be woken when it is: psi triggers (Linux 6.4).
			if a == "opened" && !strings.HasPrefix(p, "/proc/pressure/") {
				t.Errorf("%s can be opened for writing", p)
			}
		}
	})
	if after, err := os.ReadFile(theMachinesHandles[0]); err != nil || string(after) != string(before) {
		t.Errorf("core_pattern is now %q: %v", after, err)
	}
}

func TestThreat84ReleaseAgent(t *testing.T) {
	names := []string{"release_agent", "notify_on_release", "cgroup.procs", "cgroup.subtree_control", "memory.max", "tasks"}
	inEachMode(t, func(t *testing.T, m mode) {
		// /usr is the host's, where such a name could only be a text.
		got := call{mode: m}.attempts(t, append([]string{"find", "/", "-x", "/usr", "-x", "/proc"}, names...)...)
		if visited, err := strconv.Atoi(got["visited"]); err != nil || visited < 20 {
			t.Errorf("the walk saw %s paths", got["visited"])
		}
		delete(got, "visited")
		if len(got) > 0 {
			t.Errorf("found %v", got)
		}
		mounts := call{mode: m}.attempts(t, "mount")
		wantAnswers(t, mounts, map[string]string{"cgroup": "EPERM", "cgroup2": "EPERM"})
	})
	if entries := globbed(t, "/sys/fs/cgroup/*/cgroup.procs"); len(entries) > 0 {
		e := entries[0]
		var could map[string]string
		asRoot.beside(t, &could, "find", filepath.Dir(e), "cgroup.procs")
		if could[e] != "found" {
			t.Errorf("outside, the walk does not find %s: %v", e, could)
		}
	}
}

// A host's handler for crashes runs with root's rights on what the skill left in its memory, whatever the limit says, unless it
// is exactly 1: see core(5), and CVE-2025-4598 for such a handler.
func TestThreat85CoredumpToHost(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, "core", "/tmp", "/output", "/home/skill")
		want := map[string]string{"limit": "1:1", "limit afterwards": "1:1"}
		for _, how := range []string{"prlimit64", "setrlimit"} {
			for _, limit := range []string{"unlimited", "2", "0", "soft 0"} {
				want[how+" "+limit] = "EPERM"
			}
		}
		for _, dir := range []string{"/tmp", "/output", "/home/skill"} {
			want["crash in "+dir] = "aborted"
			if left := got["left in "+dir]; left != "" {
				t.Errorf("left behind: %s", left)
			}
		}
		wantAnswers(t, got, want)
	})
}

func TestThreat87CgroupPathLeak(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var got map[string]string
		call{mode: m}.probe(t, &got, "read", "/proc/self/cgroup", "/proc/1/cgroup", "/proc/self/cpuset", "/proc/1/cpuset", "/proc/thread-self/cgroup")
		for path, text := range got {
			text, ok := strings.CutPrefix(text, "read: ")
			for line := range strings.Lines(text) {
				line = strings.TrimSpace(line)
				// Where the cpuset controller stops above the box it is as many steps up as it is; that names nothing.
				if strings.HasSuffix(path, "/cpuset") && strings.ReplaceAll(line, "/..", "") == "" {
					continue
				}
				if line != "/" && !strings.HasSuffix(line, ":/") {
					t.Errorf("%s names %q", path, line)
				}
			}
			if !ok && strings.HasPrefix(path, "/proc/self/cg") {
				t.Errorf("%s: %s", path, text)
			}
		}
	})
}

func TestThreat88Pid1Environ(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		secret := "sk-" + strings.Repeat("7", 16)
		c := call{mode: m, env: []string{"API_KEY=" + secret, "OPENAI_API_KEY=" + secret}}
		var got map[string]string
		c.probe(t, &got, "read", "/proc/1/environ", "/proc/1/cmdline", "/proc/1/maps", "/proc/1/comm")
		wantAnswers(t, got, map[string]string{"/proc/1/environ": "EACCES", "/proc/1/maps": "EACCES", "/proc/1/cmdline": "read: /sbin/init" + strings.Repeat("\x00", len(initInside)+1-len("/sbin/init")), "/proc/1/comm": "read: init\n"})
		// The words are not in the probe's own command line, which the skill may of course read.
		found := c.attempts(t, "grep-proc", secret[:10], filepath.Base(filepath.Dir(binDir)))
		if n := number(t, found["read"]); n < 50 {
			t.Errorf("only %d files were read", n)
		}
		delete(found, "read")
		for path, what := range found {
			t.Errorf("%s %s", path, what)
		}
		granted := call{mode: m, env: c.env, policy: "version: 1\nenv: {pass: [API_KEY]}\n"}.attempts(t, "grep-proc", secret[:10])
		delete(granted, "read")
		if len(granted) == 0 {
			t.Error("the search does not even find what was granted")
		}
	})
}

func TestThreat90PowerThermalSide(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		all(t, call{mode: m}.attempts(t, "open", "/sys/class/powercap/intel-rapl:0/energy_uj", "/sys/devices/virtual/powercap", "/sys/class/thermal/thermal_zone0/temp",
			"/sys/class/hwmon/hwmon0/temp1_input", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "/sys/firmware/acpi", "/dev/cpu/0/msr", "/dev/cpu_dma_latency",
			"/dev/mem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/net/tun", "/dev/fuse"), "ENOENT")
		var got map[string]string
		call{mode: m}.probe(t, &got, "read", "/proc/interrupts", "/proc/timer_list", "/proc/acpi/wakeup", "/proc/latency_stats", "/proc/sched_debug", "/proc/kcore")
		for p, text := range got {
			if text != "read: " && text != "ENOENT" && text != "EACCES" {
				t.Errorf("%s: %.60s", p, text)
			}
		}
	})
}

func TestThreat91SysfsAbsent(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var got map[string][]string
		paths := []string{"/sys", "/sys/class/net", "/sys/fs/cgroup", "/sys/kernel", "/sys/firmware", "/sys/module", "/sys/block"}
		call{mode: m}.probe(t, &got, append([]string{"list"}, paths...)...)
		for _, p := range paths {
			if !slices.Equal(got[p], []string{"ENOENT"}) {
				t.Errorf("%s: %v", p, got[p])
			}
		}
		var mounts map[string]string
		call{mode: m}.probe(t, &mounts, "read", "/proc/self/mountinfo")
		for _, kind := range []string{"sysfs", "cgroup", "debugfs", "securityfs", "tracefs", "bpf"} {
			for line := range strings.Lines(mounts["/proc/self/mountinfo"]) {
				if _, after, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(after, kind) {
					t.Errorf("mounted: %s", line)
				}
			}
		}
	})
}

func TestThreat93MknodDevices(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for try, a := range (call{mode: m}).attempts(t, "mknod") {
			want := "EPERM"
			if !strings.HasPrefix(try, "mknod ") {
				want = "ok"
			}
			if a != want {
				t.Errorf("%s: %s, want %s", try, a, want)
			}
		}
		if os.Getuid() != 0 {
			return // nobody else makes devices
		}
		// Devices that a base, a readable or a writable bind already holds do not open.
		base, shared := m.baseDir(t), m.dir(t)
		for _, dir := range []string{filepath.Join(base, "data"), shared} {
			if err := unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, "zero"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		c := call{mode: m, policy: basePolicy(base, "filesystem: {write: [{host: "+shared+", path: /shared}]}\n")}
		all(t, c.attempts(t, "open", "/data/zero", "/shared/zero"), "EACCES")
		var could map[string]string
		m.beside(t, &could, "open", filepath.Join(shared, "zero"))
		if could[filepath.Join(shared, "zero")] != "ok" {
			t.Logf("outside: %v: is the directory mounted nodev?", could)
		}
	})
}

func TestThreat94DevptsPrivate(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		master, _ := openTerminal(t)
		n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
		if err != nil {
			t.Fatal(err)
		}
		numbers := []string{"pts", strconv.Itoa(n)}
		for i := range 8 {
			numbers = append(numbers, strconv.Itoa(i))
		}
		var got map[string][]string
		call{mode: m}.probe(t, &got, "list", "/dev/pts", "/dev")
		if !slices.Equal(got["/dev/pts"], []string{"ptmx"}) {
			t.Errorf("/dev/pts holds %v", got["/dev/pts"])
		}
		want := strings.Fields("fd full null ptmx pts random shm stderr stdin stdout tty urandom zero")
		if _, err := os.Stat("/proc/kcore"); err == nil {
			want = append([]string{"core"}, want...) // libcontainer links it to /proc/kcore, which is masked
		}
		if !slices.Equal(got["/dev"], want) {
			t.Errorf("/dev holds %v", got["/dev"])
		}
		tries := call{mode: m}.attempts(t, numbers...)
		wantAnswers(t, tries, map[string]string{"/dev/ptmx": "ok", "/dev/pts/ptmx": "ok", "masters": "16", "limit": "ENOSPC", "host's " + strconv.Itoa(n): "ENOENT", "host's 0": "ENOENT"})
		for _, option := range []string{"mode=620", "ptmxmode=666", "max=16", "nosuid", "noexec"} {
			if !strings.Contains(tries["mount"], option) {
				t.Errorf("/dev/pts is mounted without %s: %s", option, tries["mount"])
			}
		}
	})
}

func TestThreat96RealTty(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for _, flags := range [][]string{nil, {"--tty"}} {
			master, slave := openTerminal(t)
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			out := m.dir(t)
			policy := m.file(t, "policy.yaml", fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /report}]}\n", out))
			attempt := "given-terminal"
			if flags != nil {
				attempt = "console"
			}
			// The terminal controls skillbox's session, as a user's does.
			args := append(slices.Clone(flags), "--policy", policy, m.probeBundle(t), "--", "/skill/probe", attempt, "/report/got")
			if code := m.controlled(t, slave, args...); code != 0 {
				t.Fatalf("exit code %d: %s", code, shown(t, master))
			}
			got := reported(t, filepath.Join(out, "got"))
			if flags == nil {
				for try, a := range got {
					want := "ENOTTY"
					switch try {
					case "/dev/tty":
						want = "ENXIO"
					case "/dev/console", "/dev/tty0", "/dev/vcs":
						want = "ENOENT"
					case "/proc/self/fd/0":
						want = "ok" // a pipe of the box's own
					}
					if a != want {
						t.Errorf("%s: %s, want %s", try, a, want)
					}
				}
			} else {
				wantAnswers(t, got, map[string]string{"stdin": "/dev/pts/0", "set echo off": "ok"})
			}
			after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("%v: the user's terminal was changed: %+v, was %+v (%v)", flags, after, before, err)
			}
			var text map[string]string
			if err := json.Unmarshal([]byte(shown(t, master)), &text); err != nil && flags == nil {
				t.Errorf("output does not reach the terminal: %v", err)
			}
		}
	})
}

func TestThreat97OomAdj(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, "oom")
		want := map[string]string{"self -1000": "EACCES", "self -1": "EACCES", "old -17": "EACCES", "init 1000": "EACCES", "init -1000": "EACCES", "self 500": "ok"}
		if m.oneID(t) {
			delete(want, "init 1000") // its own box's end, see TestThreat4InitFds
		}
		wantAnswers(t, got, want)
	})
}

func TestThreat99SensitiveFileWalk(t *testing.T) {
	names := []string{
		"docker.sock", "containerd.sock", "crio.sock", "podman.sock", "kubelet", ".kube", ".git", ".ssh", ".aws", ".token", "token", "serviceaccount",
		"kubernetes.io", "config.json", ".bash_history", ".docker", ".netrc", "id_rsa", "shadow", "sudoers", "credentials", ".env", "bus",
	}
	inEachMode(t, func(t *testing.T, m mode) {
		home := m.dir(t)
		decoys := []string{".kube/config", ".git/config", ".ssh/id_rsa", ".aws/credentials", ".docker/config.json", ".bash_history", ".token", "docker.sock", ".env"}
		for _, name := range decoys {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			m.write(t, filepath.Join(home, name), "private", 0o644)
		}
		bundle := filepath.Join(home, "skill")
		if err := os.Mkdir(bundle, 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, bundle)
		m.probeAt(t, filepath.Join(bundle, "probe"))
		var could map[string]string
		m.beside(t, &could, append([]string{"find", home}, names...)...)
		if len(could) < len(decoys) {
			t.Errorf("outside, the walk found %v", could)
		}
		// What /usr and the certificates show is granted by base host.
		c := call{mode: m, bundle: bundle, env: []string{"HOME=" + home, "KUBECONFIG=" + home + "/.kube/config", "DOCKER_HOST=unix://" + home + "/docker.sock"}}
		got := c.attempts(t, append([]string{"find", "/", "-x", "/usr", "-x", "/proc"}, names...)...)
		if n := number(t, got["visited"]); n < 20 {
			t.Errorf("the walk saw %d paths", n)
		}
		delete(got, "visited")
		for p := range got {
			t.Errorf("found %s", p)
		}
		var lists map[string][]string
		c.probe(t, &lists, "list", "/", "/home", "/run", "/var", "/home/skill", "/tmp", "/input", "/run/secrets")
		for dir, want := range map[string]string{"/home": "skill", "/run": "input secrets skillbox", "/var": "tmp", "/home/skill": "", "/tmp": "", "/input": "", "/run/secrets": ""} {
			if strings.Join(lists[dir], " ") != want {
				t.Errorf("%s holds %v", dir, lists[dir])
			}
		}
		all(t, c.attempts(t, "open", home, bundle, "/var/run/docker.sock", "/run/containerd/containerd.sock", "/root", "/root/.ssh", "/etc/shadow", "/etc/sudoers", "/etc/ssh",
			"/var/run/secrets/kubernetes.io/serviceaccount/token", "/var/lib/kubelet", "/var/lib/docker", "/.dockerenv", "/mnt", "/srv", "/opt"), "ENOENT")
	})
}
