//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/helper"
)

const observing = "version: 1\naudit: {syscalls: security, files: all}\n"

// A program must not notice that it is watched, whatever the level.
func TestAWatchedSkillSeesTheSame(t *testing.T) {
	const script = `import os, socket, subprocess, stat
def tried(what, *args, **kw):
    try: r = what(*args, **kw)
    except OSError as e: r = e.errno
    if hasattr(r, 'read'): r = (r.fileno(), len(r.read()) if r.readable() else r.writable())
    print(what.__name__, str(args[:1])[:40], r)
os.umask(0o037)
open('/tmp/a', 'w').write('x')
for path in ('/tmp/a', '/etc/hosts', '/tmp/none', '/tmp/a/b', '/etc/shadow', '/dev/null', '/dev/tty', '/proc/self/comm', '/proc/1/environ', '/root', '', 'x'*5000, 'main.py', '../skill/main.py'):
    tried(open, path)
for path in ('/etc/new', '/skill/new', '/usr/new', '/proc/self/new', '/tmp/new', '/tmp'):
    tried(open, path, 'w')
tried(os.mkdir, '/tmp/d', 0o777); tried(os.mkdir, '/tmp/d'); tried(os.mkdir, '/etc/d')
d = os.open('/tmp/d', os.O_RDONLY)
tried(os.open, 'f', os.O_CREAT|os.O_EXCL|os.O_RDWR, 0o666, dir_fd=d); tried(os.open, 'f', os.O_CREAT|os.O_EXCL, dir_fd=d)
tried(os.rename, 'f', 'g', src_dir_fd=d, dst_dir_fd=d); tried(os.rename, '/tmp/a', '/etc/a')
tried(os.symlink, '../nowhere', 'l', dir_fd=d); tried(os.link, '/tmp/d/g', '/tmp/d/h'); tried(os.link, '/skill/main.py', '/tmp/m')
tried(os.mkfifo, '/tmp/fifo'); tried(os.chmod, '/tmp/d/g', 0o640); tried(os.chmod, '/etc/hosts', 0o777); tried(os.truncate, '/tmp/d/g', 5); tried(os.truncate, '/etc/hosts', 0)
os.fchdir(d); tried(open, 'g'); tried(open, 'l'); tried(os.readlink, 'l')
print(sorted(os.listdir('.')), [(oct(os.stat(f).st_mode), os.stat(f).st_uid) for f in ('g', '/tmp/a', '/tmp/d')])
tried(os.unlink, 'g'); tried(os.unlink, '/etc/hosts'); tried(os.rmdir, '/tmp'); tried(os.chown, 'h', os.getuid(), os.getgid()); tried(os.chown, 'h', 77, 77)
fds = []
try:
    while True: fds.append(os.open('/dev/null' if len(fds) % 2 else '/tmp/a', os.O_RDONLY))
except OSError as e: print('files', e.errno, len(fds))
for f in fds: os.close(f)
s = socket.socket(); tried(s.connect, ('192.0.2.7', 80))
u = socket.socket(type=socket.SOCK_DGRAM); tried(u.sendto, b'x', ('192.0.2.7', 53))
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(); c = socket.create_connection(l.getsockname()); print(c.getpeername() == l.getsockname())
n = socket.socket(); n.setblocking(False); tried(n.connect_ex, ('192.0.2.7', 80))
x = socket.socket(socket.AF_UNIX); x.bind('/tmp/sock'); x.listen(); y = socket.socket(socket.AF_UNIX); y.connect('/tmp/sock'); a, _ = x.accept()
import struct; print(struct.unpack('3i', a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:] == (os.getuid(), os.getgid()))
print(subprocess.run(['sh', '-c', 'echo in; cat /dev/stdin; exit 3'], input=b'to', capture_output=True))
print(subprocess.run(['bash', '-c', 'cat <(echo sub) /dev/fd/0 3<&0; echo > /dev/null; : > /tmp/r; exec 5>/tmp/r; echo $?'], input=b'to', capture_output=True))
tried(subprocess.run, ['/tmp/none']); tried(subprocess.run, ['/tmp/a']); tried(subprocess.run, ['/tmp'])
`
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.py": script})
		words := []string{"/usr/bin/python3", "-S", "main.py"}
		plain := call{mode: m, bundle: bundle, flags: slow(30 * time.Second), words: words}.run(t)
		if !plain.Success || strings.Count(plain.Stdout, "\n") < 50 {
			t.Fatalf("%s, %s\n%.2000s", plain.Verdict, plain.Stdout, plain.Stderr)
		}
		levels := []string{"syscalls: all, files: all", "syscalls: security, files: writes", "syscalls: none, files: all", "syscalls: security, files: all"}
		for _, level := range levels[:load(4)] { // at least two
			watched := call{mode: m, bundle: bundle, policy: "version: 1\naudit: {" + level + "}\n", flags: slow(30 * time.Second), words: words}.run(t)
			if watched.Stdout != plain.Stdout || !watched.Success {
				t.Errorf("%s: %s, %v\n%s\n%s", level, watched.Verdict, watched.Error, differ(plain.Stdout, watched.Stdout), watched.Stderr)
			}
		}
	})
}

// slow is the time-out of a call that takes long where a machine is emulated.
func slow(limit time.Duration) []string { return []string{"--timeout", patience(limit).String()} }

// differ lists lines that differ.
func differ(a, b string) string {
	var all strings.Builder
	was, is := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(was), len(is)) {
		x, y := "", ""
		if i < len(was) {
			x = was[i]
		}
		if i < len(is) {
			y = is[i]
		}
		if x != y {
			fmt.Fprintf(&all, "-%.200s\n+%.200s\n", x, y)
		}
	}
	return all.String()
}

// seen gives the details of one kind, with how often each was.
func seen[D audit.Detail](records []audit.Record) (all []D) {
	for _, r := range records {
		if d, ok := r.Detail.(D); ok {
			all = append(all, d)
		}
	}
	return all
}

func times(o audit.Outcome) int { return int(max(o.Count, 1)) }

// What the log says of opens is what was opened, also where another thread changes the path meanwhile.
func TestAnOpenThatRacesIsRecordedAsItWas(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/skill/probe", "race-open", fmt.Sprint(load(2000))}}.run(t)
		var got map[string]int
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatalf("%v: %s %s", err, r.Stdout, r.Stderr)
		}
		told := map[string]int{}
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if f.Op == "open" && (f.Path == "/tmp/a" || f.Path == "/tmp/b") {
				told[filepath.Base(f.Path)] += times(f.Outcome)
				if len(f.Claimed) > 0 {
					t.Errorf("%+v", f)
				}
			}
		}
		if got["a"] == 0 || got["b"] == 0 || told["a"] != got["a"] || told["b"] != got["b"] {
			t.Errorf("opened %v, recorded %v", got, told)
		}
	})
}

// A path that nobody can read for a moment is no way to open a file unseen.
func TestAPathThatIsHiddenOpensNothingUnseen(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/skill/probe", "hide-path", fmt.Sprint(load(4000))}}.run(t)
		var opened int
		if err := json.Unmarshal([]byte(r.Stdout), &opened); err != nil {
			t.Fatalf("%v: %s %s", err, r.Stdout, r.Stderr)
		}
		told := 0
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if f.Op == "open" && f.Path == "/tmp/hidden" {
				told += times(f.Outcome)
			}
		}
		if told != opened {
			t.Errorf("opened %d times, recorded %d times", opened, told)
		}
	})
}

// Who opens in the skill's place has the skill's rights: what others may not read on the host stays so.
func TestTheOpenerHasNoMoreRights(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		if m != asRoot {
			needs(t, "root", errors.New("another user's files are root's to make"))
		}
		dir := m.dir(t)
		for name, mode := range map[string]os.FileMode{"secret": 0o600, "group": 0o640, "open": 0o644} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "shut", "in"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"secret", "group", "open", "shut"} { // what is the caller's own is the skill's too
			if err := os.Chown(filepath.Join(dir, name), testUID+7, testUID+7); err != nil {
				t.Fatal(err)
			}
		}
		policy := fmt.Sprintf("%sfilesystem: {read: [{host: %s, path: /data}]}\n", observing, dir)
		r := call{mode: m, policy: policy, words: []string{"/bin/sh", "-c", "cat /data/secret; cat /data/group; cat /data/open; ls /data/shut; cat /data/shut/in/x; echo > /data/open; rm -f /data/open; mkdir /data/d; chmod 777 /data/open"}}.run(t)
		if r.Stdout != "open" || strings.Count(r.Stderr, "ermission denied") < 4 {
			t.Errorf("%q\n%s", r.Stdout, r.Stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "open")); err != nil {
			t.Error(err)
		}
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if strings.HasPrefix(f.Path, "/data/secret") && (f.Verdict != audit.Denied || f.Error != "EACCES" || f.Remedy == "") {
				t.Errorf("%+v", f)
			}
		}
	})
}

// What was started is told with its words, its parent, and the program that its name led to.
func TestProgramsAreRecorded(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, words: []string{"/bin/sh", "-c", "/bin/cat /etc/hostname; kill -0 $$; exec /bin/echo \"a\nb\033[31m\""}}.run(t)
		execs := seen[audit.Exec](recorded(t, m, r.ID))
		var paths []string
		for _, e := range execs {
			paths = append(paths, e.Path)
			if !slices.Contains(e.Claimed, "argv") || !slices.Contains(e.Claimed, "path") {
				t.Errorf("%+v does not say what is claimed", e)
			}
		}
		if len(execs) != 3 || !slices.Equal(execs[2].Argv, []string{"/bin/echo", `a\u000ab\u001b[31m`}) || execs[1].Parent != execs[0].PID || execs[2].PID != execs[0].PID || execs[0].Parent != 1 {
			t.Fatalf("%+v", execs)
		}
		if want := "/usr/bin/cat"; paths[1] != want {
			t.Errorf("%v, want %s", paths, want)
		}
		started := slices.IndexFunc(recorded(t, m, r.ID), func(e audit.Record) bool { return e.Kind == audit.RunStarted })
		first := slices.IndexFunc(recorded(t, m, r.ID), func(e audit.Record) bool { return e.Kind == audit.ExecKind })
		if started < 0 || first < started {
			t.Errorf("run.started is record %d, the first exec %d", started, first)
		}
	})
}

// A thread that waits in an open keeps no other waiting.
func TestAFIFOKeepsNobodyElseWaiting(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, words: []string{"/skill/probe", "fifo-meets"}}.run(t)
		if strings.TrimSpace(r.Stdout) != `"through\u003cnil\u003e"` {
			t.Errorf("%s %s: %s %s", r.Verdict, r.Error, r.Stdout, r.Stderr)
		}
	})
}

func TestManyThreadsAreWatched(t *testing.T) {
	files := load(100)
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/skill/probe", "many-threads", fmt.Sprint(files)}}.run(t)
		if !r.Success {
			t.Fatalf("%s: %s", r.Verdict, r.Stderr)
		}
		renamed := 0
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if f.Op == "rename" {
				renamed += times(f.Outcome)
			}
		}
		if renamed != 8*files {
			t.Errorf("%d renames recorded of %d", renamed, 8*files)
		}
	})
}

// More than is remembered is counted, and keeps the skill not waiting for long: it goes on, and ends when its time is over.
func TestAFloodOfOpensIsCounted(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		began := time.Now()
		r := call{mode: m, policy: observing, flags: []string{"--timeout", "60s"}, words: []string{"/skill/probe", "open-flood", "4000"}}.run(t)
		var opened int
		if err := json.Unmarshal([]byte(r.Stdout), &opened); err != nil || opened == 0 {
			t.Fatalf("%v: %s %s %s", err, r.Verdict, r.Stdout, r.Stderr)
		}
		records := recorded(t, m, r.ID)
		told := 0
		for _, f := range seen[audit.File](records) {
			if strings.HasPrefix(f.Path, "/tmp/f") {
				told += times(f.Outcome)
			}
		}
		dropped := detail[audit.Ended](t, records).Dropped
		t.Logf("%d files made and removed in %v, %d recorded, %d dropped", opened, time.Since(began), told, dropped)
		if told+int(dropped) < 2*opened || told+int(dropped) > 2*opened+500 {
			t.Errorf("%d files were made and removed; recorded %d, dropped %d", opened, told, dropped)
		}
		if dropped > 0 && !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "not in the audit log") }) {
			t.Errorf("nothing of it in %q", r.Warnings)
		}
	})
}

// What a person reads of a file that could not be opened is what the policy lacks.
func TestRefusedFilesAreInTheResult(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, words: []string{"/bin/sh", "-c", "echo x > /etc/evil; cat /srv/data/none; echo x > /skill/y"}}.run(t)
		want := map[string]string{
			"create /etc/evil: EROFS":     "none at this path: skillbox fills /etc itself",
			"create /skill/y: EROFS":      "rootfs: {bundle: copy-on-write}",
			"open /srv/data/none: ENOENT": "filesystem: {read: [{host: /srv/data/none}]}",
		}
		for what, hint := range want {
			if !slices.ContainsFunc(r.Denials, func(d helper.Denial) bool {
				return d.Kind == "file" && d.What == what && d.Hint == hint && d.Rule != ""
			}) {
				t.Errorf("no %q with %q in %+v", what, hint, r.Denials)
			}
		}
	})
}
