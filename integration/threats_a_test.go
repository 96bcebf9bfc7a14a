//go:build linux

package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

const initInside = "/run/skillbox/init"

// ownPrograms copies the programs to a directory of the mode's user, who may then write to them: only the box stands in the way.
func (m mode) ownPrograms(t *testing.T) string {
	t.Helper()
	dir := m.dir(t)
	for _, name := range []string{"skillbox", "skillboxd", "skillbox-init", "probe"} {
		data, err := os.ReadFile(filepath.Join(binDir, name))
		if err != nil {
			t.Fatal(err)
		}
		m.write(t, filepath.Join(dir, name), string(data), 0o755)
	}
	return dir
}

func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		got[e.Name()] = hex.EncodeToString(sum[:])
	}
	return got
}

func TestThreat1ExeOverwrite(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		programs := m.ownPrograms(t)
		var could map[string]string
		m.beside(t, &could, "exe-overwrite", filepath.Join(programs, "probe"))
		if again := "reopen after the end"; could[again] == "ETXTBSY" && patience(1) > 1 {
			could[again] = "ok" // on a slow machine the program has not ended yet; this is only what is possible outside
		}
		wantAnswers(t, could, map[string]string{"write": "ok", "reopen after the end": "ok", "unlink": "ok"})

		before := sums(t, programs)
		inRoot := binDir
		binDir = programs
		defer func() { binDir = inRoot }()
		bundle := m.probeBundle(t)
		got := call{mode: m, bundle: bundle}.attempts(t, "exe-overwrite", initInside)
		wantAnswers(t, got, map[string]string{"write": "EROFS", "reopen": "EROFS", "reopen after the end": "EROFS", "write /proc/1/exe": "EACCES", "unlink": "EROFS"})
		got = call{mode: m, bundle: bundle}.attempts(t, "exe-overwrite", "/skill/probe")
		wantAnswers(t, got, map[string]string{"write": "EROFS", "reopen": "EROFS", "reopen after the end": "EROFS", "unlink": "EROFS"})
		// The entry point makes init's child run init's own file as an interpreter; it finds no socket and ends.
		r := call{mode: m, bundle: m.bundleOf(t, map[string]string{"evil": "#!/proc/self/exe\n"}), words: []string{"/skill/evil"}}.run(t)
		if r.Success {
			t.Errorf("#!/proc/self/exe: %+v", r)
		}
		for name, sum := range sums(t, programs) {
			if sum != before[name] {
				t.Errorf("%s was changed", name)
			}
		}
	})
}

func TestThreat3InheritedFds(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		root, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for _, words := range [][]string{{"/skill/probe", "open-descriptors"}, {"/bin/sh", "-c", "ls -l /proc/$$/fd /proc/self/fd/5/"}} {
			cmd := m.command("exec", m.probeBundle(t), "--")
			cmd.Args = append(cmd.Args, words...)
			cmd.ExtraFiles = []*os.File{root, root, root, root}
			out, _ := cmd.CombinedOutput() // ls fails, as it should
			text := string(out)
			if words[0] == "/bin/sh" {
				if strings.Count(text, " -> ") != 3 || !strings.Contains(text, "No such file") {
					t.Errorf("a shell has other descriptors than three:\n%s", text)
				}
				continue
			}
			for _, n := range []string{`"0":`, `"1":`, `"2":`} {
				if !strings.Contains(text, n) {
					t.Errorf("descriptor %s is not there: %s", n, text)
				}
			}
			if strings.Count(text, `":"`) != 3 {
				t.Errorf("more descriptors than three: %s", text)
			}
		}
		control := exec.Command(filepath.Join(binDir, "probe"), "open-descriptors")
		control.ExtraFiles = []*os.File{root, root, root, root}
		if out, err := control.Output(); err != nil || !strings.Contains(string(out), `"5":"/"`) {
			t.Errorf("the probe does not see what it inherits: %v %s", err, out)
		}
	})
}

func TestThreat4InitFds(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got := call{mode: m}.attempts(t, "init")
		if m.oneID(t) {
			// The skill is uid 0 of the namespace that init's files in /proc belong to: it sees their names and may make init a likelier
			// victim of memory shortage, that is, end its own box. What they lead to stays closed.
			for _, try := range []string{"list fd", "list fdinfo", "list task/1/fd", "list ns", "list map_files", "write oom_score_adj", "write clear_refs", "write coredump_filter"} {
				delete(got, try)
			}
		}
		all(t, got, "EACCES", "EPERM", "ENOENT", "EINVAL")
		var mounts map[string]string
		call{mode: m}.probe(t, &mounts, "read", "/proc/1/mountinfo", "/proc/self/mountinfo", "/proc/self/mounts")
		for path, text := range mounts {
			for _, leak := range []string{binDir, "/tmp/skillbox-test", "probe"} {
				if strings.Contains(text, leak) {
					t.Errorf("%s names %s:\n%s", path, leak, text)
				}
			}
		}
	})
}

func TestThreat6DevnullMaskSwap(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		base := m.baseDir(t)
		if err := os.Mkdir(filepath.Join(base, "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, filepath.Join(base, "dev"))
		m.link(t, "/proc/sys/kernel/core_pattern", filepath.Join(base, "dev/null"))
		c := call{mode: m, policy: basePolicy(base, "")}
		var kinds map[string]string
		c.probe(t, &kinds, "device", "/dev/null", "/dev/zero", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sys/kernel/core_pattern")
		wantAnswers(t, kinds, map[string]string{"/dev/null": "char 1:3", "/dev/zero": "char 1:5", "/proc/sys/kernel/core_pattern": "file"})
		for _, masked := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list"} {
			if kinds[masked] != "char 1:3" && kinds[masked] != "ENOENT" {
				t.Errorf("%s is masked by %s", masked, kinds[masked])
			}
		}
		all(t, c.attempts(t, "open-write", "/proc/sys/kernel/core_pattern"), "EROFS", "EACCES")
	})
}

func TestThreat7ConsolePtsSwap(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		base, victim := m.baseDir(t), m.file(t, "victim", "unharmed")
		for _, dir := range []string{"dev", "dev/pts"} {
			if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, filepath.Join(base, dir))
		}
		for _, name := range []string{"console", "tty", "ptmx", "pts/0", "pts/ptmx"} {
			m.link(t, victim, filepath.Join(base, "dev", name))
		}
		master, slave := openTerminal(t)
		out := m.dir(t)
		policy := m.file(t, "policy.yaml", basePolicy(base, "filesystem: {write: [{host: "+out+", path: /report}]}\n"))
		if code := m.controlled(t, slave, "--tty", "--policy", policy, m.probeBundle(t), "--", "/skill/probe", "console", "/report/got"); code != 0 {
			t.Fatalf("exit code %d: %s", code, shown(t, master))
		}
		got := reported(t, filepath.Join(out, "got"))
		wantAnswers(t, got, map[string]string{"stdin": "/dev/pts/0", "/dev/console": "ENOENT", "/dev/tty": "ok", "kind of /dev/pts/0": "devpts"})
		for _, try := range []string{"unlink /dev/pts/0", "rename /dev/pts/0", "link over /dev/pts/0", "make /dev/console", "replace /dev/tty"} {
			if a := got[try]; a != "EPERM" && a != "EROFS" && a != "EACCES" && a != "EEXIST" {
				t.Errorf("%s: %q", try, a)
			}
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "unharmed" {
			t.Errorf("the victim was written to: %q %v", text, err)
		}
	})
}

func TestThreat9DevSymlinkRootfs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		victim := m.dir(t)
		base := m.baseDir(t)
		m.link(t, victim, filepath.Join(base, "dev"))
		mustRefuse(t, call{mode: m, policy: basePolicy(base, ""), words: []string{"/skill/probe", "nothing"}}.run(t), "/dev is not a directory")
		base = m.baseDir(t)
		for _, name := range []string{"dev/pts", "dev/shm", "dev/mqueue", "run/secrets", "home/skill", "var/tmp"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			m.link(t, victim, filepath.Join(base, name))
		}
		// What a base has there is not shown: these places are skillbox's own.
		all(t, call{mode: m, policy: basePolicy(base, "")}.attempts(t, "create", "/dev/shm/x", "/home/skill/x", "/var/tmp/x"), "ok")
		mustBeEmpty(t, victim)
	})
}

func TestThreat10ProcSysSymlinkRootfs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		victim := m.dir(t)
		for _, name := range []string{"proc", "sys", "tmp"} {
			base := m.baseDir(t)
			m.link(t, victim, filepath.Join(base, name))
			mustRefuse(t, call{mode: m, policy: basePolicy(base, ""), words: []string{"/skill/probe", "nothing"}}.run(t), "prohibited symbolic link")
		}
		// The base itself, or what leads to it, is a link: it could be turned after it was looked at.
		real := m.baseDir(t)
		links := m.dir(t)
		m.link(t, real, filepath.Join(links, "base"))
		m.link(t, filepath.Dir(real), filepath.Join(links, "parent"))
		for _, base := range []string{"base", "parent/" + filepath.Base(real)} {
			r := call{mode: m, policy: basePolicy(filepath.Join(links, base), ""), words: []string{"/skill/probe", "nothing"}}.run(t)
			mustRefuse(t, r, "symbolic link")
		}
		mustBeEmpty(t, victim)
	})
}

func TestThreat12MountpointMkdirEscape(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		victim, source := m.dir(t), m.dir(t)
		base := m.baseDir(t)
		m.link(t, victim, filepath.Join(base, "out"))
		m.link(t, victim, filepath.Join(base, "data/out"))
		m.link(t, "..", filepath.Join(base, "up"))
		// Through a link of the base, to the link itself, and into what is mounted from the host.
		for _, path := range []string{"/out/made", "/out", "/data/made", "/data/out/made", "/up/up/made"} {
			policy := basePolicy(base, fmt.Sprintf("filesystem: {write: [{host: %s, path: %s}]}\n", source, path))
			r := call{mode: m, policy: policy, words: []string{"/skill/probe", "nothing"}}.run(t)
			mustRefuse(t, r, "mount point "+path)
		}
		// A bundle is not a place for mounts at all.
		bundle := m.probeBundle(t)
		m.link(t, victim, filepath.Join(bundle, "out"))
		for _, path := range []string{"/skill/out/made", "/usr/made"} {
			policy := fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: %s}]}\n", source, path)
			mustRefuse(t, call{mode: m, policy: policy, bundle: bundle, words: []string{"/skill/probe", "nothing"}}.run(t), "is taken")
		}
		mustBeEmpty(t, victim)
		entries, err := os.ReadDir(filepath.Join(base, "data"))
		if err != nil || len(entries) != 1 {
			t.Errorf("something was made in the base: %v %v", entries, err)
		}
	})
}

// The race itself is run thousands of times in package rootfs; here an accomplice swaps while whole boxes start.
func TestThreat13BindSourceSwap(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		parent, private := m.dir(t), m.dir(t)
		m.write(t, filepath.Join(private, "key"), "private", 0o644)
		data := filepath.Join(parent, "data")
		if err := os.Mkdir(data, 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, data)
		m.write(t, filepath.Join(data, "key"), "meant", 0o644)
		m.link(t, private, filepath.Join(parent, "other"))
		c := call{mode: m, policy: fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /data}]}\n", data), words: []string{"/skill/probe", "read", "/data/key"}}
		swap := func() {
			if err := unix.Renameat2(unix.AT_FDCWD, data, unix.AT_FDCWD, filepath.Join(parent, "other"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
			}
		}
		if got := c.run(t); got.Stdout != "{\"/data/key\":\"read: meant\"}\n" {
			t.Fatalf("the bind does not work at all: %+v", got)
		}
		swap() // for good: a link in the place of the directory is refused
		mustRefuse(t, c.run(t), "symbolic links")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					swap()
				}
			}
		}()
		for range 4 {
			if got := c.run(t); strings.Contains(got.Stdout, "private") {
				t.Errorf("the box saw %s", got.Stdout)
			}
		}
		close(stop)
		<-stopped
	})
}

func TestThreat15NssAndPasswdFromRootfs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		base := m.baseDir(t)
		files := []string{"etc/passwd", "etc/group", "etc/nsswitch.conf", "etc/subuid", "etc/hosts", "usr/libnss_files.so.2"}
		for i, name := range files {
			m.write(t, filepath.Join(base, name), "skill:x:0:0::/:/bin/sh\nroot:x:0:0::/:/bin/sh\n", 0o644)
			files[i] = filepath.Join(base, name)
		}
		opened := watched(t, files...)
		var status map[string]string
		r := call{mode: m, policy: basePolicy(base, "")}.probe(t, &status, "status")
		if uid := status["Uid"]; !m.oneID(t) && !strings.HasPrefix(uid, "1000\t1000") {
			t.Errorf("runs as uid %s", uid)
		}
		if seen := opened(); len(seen) > 0 {
			t.Errorf("skillbox opened %v of the root file system", seen)
		}
		if r.Sandbox.Layers["root"] == "" {
			t.Error("the result does not name the base")
		}
		var read map[string]string
		call{mode: m, policy: basePolicy(base, "")}.probe(t, &read, "read", "/etc/passwd")
		if seen := opened(); !slices.Contains(seen, files[0]) || !strings.HasPrefix(read["/etc/passwd"], "read: skill") {
			t.Errorf("an opening inside the box is not noticed: %v %v", seen, read)
		}
	})
}

func TestThreat16UidWraparound(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.probeBundle(t)
		for _, text := range []string{"user: 4294967296", "resources: {user: -1}", `rootfs: {user: "00"}`} {
			r := call{mode: m, bundle: bundle, policy: "version: 1\n" + text + "\n", words: []string{"/skill/probe", "nothing"}}.run(t)
			mustRefuse(t, r, "unknown key")
		}
		// A name that a root file system maps to 0 is still the number that skillbox gave; no id can be reached from inside.
		base := m.baseDir(t)
		m.write(t, filepath.Join(base, "etc/passwd"), "skill:x:0:0::/:/bin/sh\n", 0o644)
		got := call{mode: m, policy: basePolicy(base, "")}.attempts(t, "change-ids")
		one := m.oneID(t)
		for try, a := range got {
			if a != "EPERM" && a != "EINVAL" && !(one && strings.HasSuffix(try, "(0)") && a == "ok") {
				t.Errorf("%s: %s", try, a)
			}
		}
	})
}

func TestThreat18SuidAndFilecapsInRootfs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		base := m.baseDir(t)
		owners := []int{os.Getuid()}
		if os.Getuid() == 0 {
			owners = []int{0, testUID, testUID + 1, 1500000000}
		}
		var paths []string
		for i, owner := range owners {
			path := filepath.Join(base, "usr/bin", fmt.Sprintf("suid%d", i))
			m.probeAt(t, path)
			if err := os.Lchown(path, owner, owner); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(path, 0o6755); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, "/usr/bin/"+filepath.Base(path))
		}
		if os.Getuid() == 0 {
			// Version 2 counts in the machine's own user namespace, version 3 in that of its owner: see capabilities(7).
			for i, root := range []int{-1, 0, testUID, testUID + 1, 1500000000} {
				path := filepath.Join(base, "usr/bin", fmt.Sprintf("caps%d", i))
				m.probeAt(t, path)
				if err := unix.Setxattr(path, "security.capability", fileCapability(root), 0); err != nil {
					t.Fatal(err)
				}
				paths = append(paths, "/usr/bin/"+filepath.Base(path))
			}
		}
		var self map[string]string
		call{mode: m, policy: basePolicy(base, "")}.probe(t, &self, "status")
		var got map[string]map[string]string
		call{mode: m, policy: basePolicy(base, "")}.probe(t, &got, append([]string{"run"}, paths...)...)
		for _, path := range paths {
			for _, field := range []string{"Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				if got[path][field] != self[field] {
					t.Errorf("%s: %s %q, was %q (%s)", path, field, got[path][field], self[field], got[path]["error"])
				}
			}
			if strings.Trim(got[path]["CapPrm"], "0") != "" {
				t.Errorf("%s has capabilities %s", path, got[path]["CapPrm"])
			}
		}
		if os.Getuid() == 0 && m == rootless {
			var could map[string]map[string]string
			m.beside(t, &could, "run", filepath.Join(base, "usr/bin/suid0"), filepath.Join(base, "usr/bin/caps0"))
			if uid := could[filepath.Join(base, "usr/bin/suid0")]["Uid"]; !strings.Contains(uid, "\t0\t0") {
				t.Logf("outside, the set-uid program runs as %q: is %s mounted nosuid?", uid, base)
			}
			if prm := could[filepath.Join(base, "usr/bin/caps0")]["CapPrm"]; prm != "0000000000002000" {
				t.Logf("outside, file capabilities gave %q", prm)
			}
		}
		// In a bundle set-id bits are refused before anything starts.
		bundle := m.probeBundle(t)
		if err := unix.Chmod(filepath.Join(bundle, "probe"), 0o4755); err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, call{mode: m, bundle: bundle, words: []string{"/skill/probe", "nothing"}}.run(t), "set-user-id")
	})
}

// fileCapability is a security.capability attribute with cap_net_raw+ep: version 2, or version 3 of a namespace whose root is given.
func fileCapability(root int) []byte {
	version, size := uint32(0x02000000), 20
	if root >= 0 {
		version, size = 0x03000000, 24
	}
	word := func(v uint32) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
	data := slices.Concat(word(version|1), word(1<<unix.CAP_NET_RAW), word(0), word(0), word(0), word(uint32(root)))
	return data[:size]
}

func TestThreat19LdsoInSetup(t *testing.T) {
	steering := []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GODEBUG"}
	inEachMode(t, func(t *testing.T, m mode) {
		base := m.baseDir(t)
		library := m.file(t, "evil.so", "not a library")
		files := []string{library}
		for _, name := range []string{"etc/ld.so.preload", "etc/ld.so.cache", "usr/.ld.so", "usr/bin/.ld.so"} {
			m.write(t, filepath.Join(base, name), library+"\n", 0o644)
			files = append(files, filepath.Join(base, name))
		}
		bundle := m.probeBundle(t)
		m.write(t, filepath.Join(bundle, ".ld.so"), library, 0o755)
		m.write(t, filepath.Join(bundle, "ld.so.preload"), library, 0o644)
		opened := watched(t, files...)
		var env []string
		c := call{mode: m, bundle: bundle, policy: basePolicy(base, "")}
		for _, name := range steering {
			c.env = append(c.env, name+"="+library)
		}
		c.probe(t, &env, "environ")
		for _, e := range env {
			if name, _, _ := strings.Cut(e, "="); slices.Contains(steering, name) {
				t.Errorf("%s was inherited", e)
			}
		}
		if seen := opened(); len(seen) > 0 {
			t.Errorf("skillbox opened %v", seen)
		}
		for _, name := range []string{"LD_PRELOAD", "GLIBC_TUNABLES", "GCONV_PATH"} {
			r := call{mode: m, bundle: bundle, policy: "version: 1\nenv: {pass: [" + name + "]}\n", words: []string{"/skill/probe", "nothing"}}.run(t)
			mustRefuse(t, r, name)
		}
		// The watch notices a loader that does load: a program of the host with the same environment.
		control := exec.Command("/bin/sh", "-c", ":")
		control.Env = []string{"LD_PRELOAD=" + library}
		if err := control.Run(); err != nil {
			t.Fatal(err)
		}
		if seen := opened(); !slices.Contains(seen, library) {
			t.Log("/bin/sh did not load what LD_PRELOAD names: is it static?")
		}
	})
}

func TestThreat21GoRuntimeFds(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		// A shell opens nothing of its own: what it has beyond stdio would be init's (cpu.max, epoll, eventfd, the socket).
		r := call{mode: m, words: []string{"/bin/sh", "-c", "ls -l /proc/$$/fd; exec ls -l /proc/self/fd"}}.run(t)
		if n := strings.Count(r.Stdout, " -> "); n != 7 { // ls has the directory open, the shell has not
			t.Errorf("%d descriptors in two programs:\n%s", n, r.Stdout)
		}
		for _, leak := range []string{"cgroup", "cpu.", "eventpoll", "eventfd", "socket"} {
			if strings.Contains(r.Stdout, leak) {
				t.Errorf("%s is open:\n%s", leak, r.Stdout)
			}
		}
		if r.Verdict != helper.Exited {
			t.Errorf("%+v", r)
		}
	})
}

func TestThreat22AllThreadsFiltered(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var tasks map[string]map[string]string
		call{mode: m}.probe(t, &tasks, "every-task")
		inits, processes := 0, map[string]bool{}
		for path, status := range tasks {
			processes[status["Tgid"]] = true
			if status["Tgid"] == "1" {
				inits++
			}
			for field, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2"} {
				if status[field] != want {
					t.Errorf("%s: %s %q", path, field, status[field])
				}
			}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				if strings.Trim(status[set], "0") != "" || status[set] == "" {
					t.Errorf("%s: %s %q", path, set, status[set])
				}
			}
		}
		if inits == 0 || len(processes) != 3 || len(tasks) < 12 {
			t.Errorf("looked at %d tasks of processes %v", len(tasks), processes)
		}
	})
}
