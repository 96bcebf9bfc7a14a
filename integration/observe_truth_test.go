//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
)

// The first process of a box has init as its parent, and can name init's own paths: nothing starts by them unseen.
func TestNoProgramStartsUnseenByInitsOwnPath(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/skill/probe", "race-own-exec", fmt.Sprint(load(300))}}.run(t)
		var ran []string
		if err := json.Unmarshal([]byte(r.Stdout), &ran); err != nil {
			t.Fatalf("%v: %s %s %s", err, r.Verdict, r.Stdout, r.Stderr)
		}
		told := map[string]bool{}
		for _, e := range seen[audit.Exec](recorded(t, m, r.ID)) {
			if len(e.Argv) > 3 && slices.Contains(e.Argv, "race-own-exec") {
				told[e.Argv[3]] = true
			}
		}
		for _, attempt := range ran {
			if !told[attempt] {
				t.Errorf("attempt %s started a program, and nothing says so", attempt)
			}
		}
		t.Logf("%d attempts ran, %d are told", len(ran), len(told))
	})
}

// What is told of a change is the file that was changed, whatever links lead there.
func TestChangesAreToldWhereTheyWereMade(t *testing.T) {
	const script = `import os
os.umask(0)
os.makedirs('/tmp/there/in'); os.makedirs('/tmp/here'); os.chdir('/tmp/here'); os.symlink('/tmp/there/in', 'l')
for f in ('victim', 'old', 'm', 't', 'c', 'h', 'odd (deleted)'): open('/tmp/there/' + f, 'w').close()
os.unlink('l/../victim'); os.rename('/tmp/here/l/../old', 'l/new'); os.mkdir('/tmp/here/l/d/'); os.rmdir('l/d')
os.symlink('../m', 'l/m'); os.chmod('l/m', 0o640)
os.symlink('t', '/tmp/there/t2'); os.truncate('l/../t2', 5)
os.link('l/../h', 'l/h2'); os.mkfifo('l/fifo')
os.symlink('/tmp/there/c', 'l/c'); d = os.open('l', os.O_RDONLY); os.chmod('c', 0o600, dir_fd=d); os.unlink('c', dir_fd=d)
import ctypes; assert ctypes.CDLL(None).linkat(-100, b'/tmp/here/l/m', -100, b'/tmp/here/m3', 0x400) == 0 # AT_SYMLINK_FOLLOW
try: os.unlink('l/../nothing')
except FileNotFoundError: pass
try: os.rmdir('l/..')
except OSError as e: assert e.errno == 39
open('l/../odd (deleted)', 'a').close()
print(os.stat('/tmp/there/m').st_mode & 0o777 == 0o640, os.stat('/tmp/there/t').st_size, os.path.samefile('m3', '/tmp/there/m'), sorted(os.listdir('/tmp/there')))`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, words: []string{"/usr/bin/python3", "-S", "-c", script}}.run(t)
		if want := "True 5 True ['c', 'h', 'in', 'm', 'odd (deleted)', 't', 't2']"; strings.TrimSpace(r.Stdout) != want {
			t.Fatalf("%s: %s %s", r.Verdict, r.Stdout, r.Stderr)
		}
		told := map[string]bool{}
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if strings.HasPrefix(f.Path, "/tmp") && f.Op != "open" {
				told[strings.TrimSpace(fmt.Sprint(f.Op, " ", f.Path, " ", f.To, " ", f.Error, f.Claimed))] = true
			}
		}
		for _, want := range []string{
			"remove /tmp/there/victim  []", "rename /tmp/there/old /tmp/there/in/new []", "directory /tmp/there/in/d  []", "remove /tmp/there/in/d  []",
			"link /tmp/there/in/m ../m []", "mode /tmp/there/m  []", "write /tmp/there/t  []", "link /tmp/there/h /tmp/there/in/h2 []",
			"create /tmp/there/in/fifo  []", "mode /tmp/there/c  []", "remove /tmp/there/in/c  []", "link /tmp/there/m /tmp/here/m3 []",
			"remove /tmp/there/nothing  ENOENT[]", "remove /tmp/here/l/..  ENOTEMPTY[]", "create /tmp/there/odd (deleted)  []",
		} {
			if !told[want] {
				t.Errorf("no %q", want)
			}
		}
		if t.Failed() {
			t.Log(strings.Join(slices.Sorted(maps.Keys(told)), "\n"))
		}
	})
}

// A directory that another thread exchanges while a file of it is removed does not make the record say another file than is gone.
func TestARemovalThatRacesIsToldAsItWas(t *testing.T) {
	const script = `import json, os, sys, threading
n = int(sys.argv[1])
for d in 'ab':
    os.mkdir('/tmp/' + d)
    for i in range(n): os.close(os.open('/tmp/%s/f%d' % (d, i), os.O_CREAT))
os.symlink('a', '/tmp/s')
done = False
def exchange():
    while not done:
        for d in 'ba':
            os.symlink(d, '/tmp/s2'); os.rename('/tmp/s2', '/tmp/s')
other = threading.Thread(target=exchange); other.start()
for i in range(n): os.unlink('/tmp/s/f%d' % i)
done = True; other.join()
print(json.dumps(['/tmp/%s/f%d' % (d, i) for d in 'ab' for i in range(n) if not os.path.exists('/tmp/%s/f%d' % (d, i))]))`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/usr/bin/python3", "-S", "-c", script, fmt.Sprint(load(500))}}.run(t)
		var gone, told []string
		if err := json.Unmarshal([]byte(r.Stdout), &gone); err != nil {
			t.Fatalf("%v: %s %s %s", err, r.Verdict, r.Stdout, r.Stderr)
		}
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if f.Op == "remove" {
				told = append(told, f.Path)
				if len(f.Claimed) > 0 {
					t.Errorf("%+v", f)
				}
			}
		}
		slices.Sort(gone)
		slices.Sort(told)
		if len(gone) < 2 || !slices.Equal(gone, told) {
			t.Errorf("%d are gone, %d told: %.1000s", len(gone), len(told), differ(strings.Join(gone, "\n"), strings.Join(told, "\n")))
		}
	})
}

// A program that narrows its own rights with Landlock is not given back what it gave up by who opens in its place.
func TestAWatchedProgramDoesNotTrustInLandlock(t *testing.T) {
	const script = `import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
open('/tmp/f', 'w').close()
rules = libc.syscall(444, struct.pack('Q', 4), 8, 0) # landlock_create_ruleset: reading files
if rules < 0:
    print(errno.errorcode[ctypes.get_errno()])
else:
    assert libc.syscall(446, rules, 0) == 0, ctypes.get_errno() # landlock_restrict_self
    try: open('/tmp/f').close(); print('opened')
    except PermissionError: print('refused')`
	inEachMode(t, func(t *testing.T, m mode) {
		words := []string{"/usr/bin/python3", "-S", "-c", script}
		plain := call{mode: m, words: words}.run(t)
		if got := strings.TrimSpace(plain.Stdout); got != "refused" && got != "ENOSYS" && got != "EOPNOTSUPP" { // as the kernel is
			t.Errorf("%s: %s", got, plain.Stderr)
		}
		for _, level := range []string{"files: writes", "files: all", "syscalls: security"} {
			r := call{mode: m, policy: "version: 1\naudit: {" + level + "}\n", words: words}.run(t)
			if strings.TrimSpace(r.Stdout) != "ENOSYS" {
				t.Errorf("%s: %s %s", level, r.Stdout, r.Stderr)
			}
		}
	})
}

// A mode and an owner can be changed of what is open only for reading.
func TestChangesOfOpenFilesAreTold(t *testing.T) {
	const script = `import os
open('/tmp/f', 'w').close()
f = os.open('/tmp/f', os.O_RDONLY); os.fchmod(f, 0o755); os.fchown(f, os.getuid(), -1)
try: os.fchmod(99, 0o700)
except OSError as e: print(e.errno)`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: "version: 1\naudit: {files: writes}\n", words: []string{"/usr/bin/python3", "-S", "-c", script}}.run(t)
		told := map[string]bool{}
		for _, f := range seen[audit.File](recorded(t, m, r.ID)) {
			if told[f.Op+" "+f.Path] = true; f.Op == "mode" && !slices.Contains(f.Claimed, "path") {
				t.Errorf("%+v", f)
			}
		}
		if !told["mode /tmp/f"] || !told["owner /tmp/f"] || strings.TrimSpace(r.Stdout) != "9" {
			t.Errorf("%v %s %s", told, r.Stdout, r.Stderr)
		}
	})
}

// A thread may have descriptors of its own, and outlive the first thread of its process: what it does with them is told.
func TestSocketsOfAThreadsOwnAreSeen(t *testing.T) {
	const script = `import ctypes, os, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def told(what, r): print(what, r, ctypes.get_errno() if r < 0 else '', flush=True)
def to(port): return struct.pack('!H4s8x', port, socket.inet_aton('127.0.0.1'))
def address(port): return struct.pack('H', socket.AF_INET) + to(port)
decoy = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def own(_):
    u = socket.socket(type=socket.SOCK_DGRAM)
    os.dup2(u.fileno(), decoy.fileno())
    told('send', libc.sendto(decoy.fileno(), b'x', 1, 0, address(4001), 16))
    s = socket.socket()
    told('bind', libc.bind(s.fileno(), address(4002), 16))
    told('listen', libc.listen(s.fileno(), 1))
    c = socket.socket()
    told('connect', libc.connect(c.fileno(), address(4002), 16))
    return 0
stack = ctypes.create_string_buffer(1 << 20) # a thread without CLONE_FILES, for which its maker waits: they have one stack of Python's
if libc.clone(own, ctypes.c_void_p((ctypes.addressof(stack) + (1 << 20)) & ~15), 0x14b00, None) < 0: print('clone', ctypes.get_errno())
decoy.bind((0, 0)); decoy.sendto(struct.pack('IHHIIBxxx', 20, 18, 0x301, 1, 0, 0), (0, 0))
def last():
    first.wait()
    import time
    while ' Z ' not in open('/proc/%d/task/%d/stat' % (os.getpid(), os.getpid())).read(): time.sleep(0.01)
    s = socket.socket()
    told('bind', libc.bind(s.fileno(), address(4003), 16))
    told('listen', libc.listen(s.fileno(), 1))
    os._exit(0)
first = threading.Event()
threading.Thread(target=last).start()
first.set(); libc.syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, words: []string{"/usr/bin/python3", "-S", "-c", script}}.run(t)
		if want := "send 1 \nbind 0 \nlisten 0 \nconnect 0 \nbind 0 \nlisten 0 \n"; r.Stdout != want {
			t.Fatalf("%s: %q %s", r.Verdict, r.Stdout, r.Stderr)
		}
		told := map[string]bool{}
		for _, c := range seen[audit.Connection](recorded(t, m, r.ID)) {
			told[strings.TrimSpace(fmt.Sprintf("%s %s %d", c.Op, c.Address, c.Port))] = true
			if c.PID != 0 && c.Op != "connect" && (!slices.Contains(c.Claimed, "address") || !slices.Contains(c.Claimed, "port")) {
				t.Errorf("%+v", c)
			}
		}
		for _, want := range []string{
			"send 127.0.0.1 4001", "bind 127.0.0.1 4002", "listen 127.0.0.1 4002", "connect 127.0.0.1 4002", "bind 127.0.0.1 4003", "listen 127.0.0.1 4003", "bind  0", "send  0",
		} {
			if !told[want] {
				t.Errorf("no %q in %v", want, told)
			}
		}
	})
}

// A program that was just written and closed can be started: nobody else has it open still.
func TestAProgramCanBeStartedAsSoonAsItIsClosed(t *testing.T) {
	const script = `import os, sys
code = open('/bin/true', 'rb').read()
for i in range(int(sys.argv[1])):
    path = '/tmp/p%d' % i
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o700)
    assert fd > 2, fd
    os.write(fd, code)
    os.close(fd)
    pid = os.posix_spawn(path, [path], {})
    assert os.waitpid(pid, 0)[1] == 0
    fd = os.open(path, os.O_RDWR)
    os.close(fd)
    assert os.waitpid(os.posix_spawn(path, [path], {}), 0)[1] == 0
    os.unlink(path)
print('all')`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: "version: 1\naudit: {files: writes}\n", flags: slow(60 * time.Second), words: []string{"/usr/bin/python3", "-S", "-c", script, fmt.Sprint(load(500))}}.run(t)
		if strings.TrimSpace(r.Stdout) != "all" {
			t.Errorf("%s %s %s", r.Verdict, r.Stdout, r.Stderr)
		}
	})
}
