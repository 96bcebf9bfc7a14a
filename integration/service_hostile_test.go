//go:build linux

package integration

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// connect speaks to the service without a client, as a user.
func (s *service) connect(t *testing.T, uid int) (int, error) {
	t.Helper()
	return s.connectTo(t, filepath.Base(s.socket()), uid)
}

// connectTo connects with a socket in its directory.
func (s *service) connectTo(t *testing.T, name string, uid int) (int, error) {
	t.Helper()
	dir, err := os.Open(s.dir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	// The service asks for the uid of the thread that connected.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid int) {
		if uid == os.Getuid() && unix.Geteuid() == uid {
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Fatal(errno)
		}
	}
	become(uid)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)})
	become(os.Getuid())
	if err != nil {
		return -1, err
	}
	tv := unix.NsecToTimeval(int64(patience(20 * time.Second)))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return fd, nil
}

// closes says that the service hangs up without a word.
func closes(fd int) error {
	n, err := unix.Read(fd, make([]byte, 1000))
	if errors.Is(err, unix.ECONNRESET) || n == 0 && err == nil {
		return nil
	}
	return fmt.Errorf("%d bytes, %w", n, err)
}

func TestAClientThatMisbehavesHoldsNobodyUp(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": repeating})
		s.warm(t, 1, func() *helper.Result { return s.run(t, nil, bundle, "./main.sh", "a") })
		pid, uid := s.pid(t), os.Getuid()
		if cred := m.credential(); cred != nil {
			uid = int(cred.Uid)
		}
		fds := map[string]int{}
		for name, says := range map[string]string{
			"nothing": "", "half a header": "SKB1", "garbage": strings.Repeat("GET / HTTP/1.1\r\n", 10), "a huge header": "SKB1\xff\xff\xff\xff{}",
			"less than it announces": "SKB1\x00\x40\x00\x00{", "no JSON": "SKB1\x00\x00\x00\x04abcd", "another kind of JSON": "SKB1\x00\x00\x00\x02[]",
		} {
			fd, err := s.connect(t, uid)
			if err == nil {
				_, err = unix.Write(fd, []byte(says))
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			fds[name] = fd
		}
		within(t, patience(8*time.Second), func() {
			for range 5 {
				nonce := rand.Text()
				if r := s.run(t, nil, bundle, "./main.sh", nonce); r.Stdout != nonce+"\n" {
					t.Errorf("%+v", r)
				}
			}
		})
		for name, fd := range fds {
			if err := closes(fd); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A request of no build, and without what it needs.
		request := `{"version":1,"op":"exec"}`
		fd, err := s.connect(t, uid)
		if err == nil {
			_, err = unix.Write(fd, append([]byte{'S', 'K', 'B', '1', 0, 0, 0, byte(len(request))}, request...))
		}
		if err != nil {
			t.Error(err)
		}
		answer := make([]byte, 1000)
		if n, err := unix.Read(fd, answer); err != nil || !strings.Contains(string(answer[:n]), `"retired":true`) {
			t.Errorf("%q, %v", answer[:max(n, 0)], err)
		}
		if r := s.run(t, nil, bundle, "./main.sh", "a"); r.Stdout != "a\n" {
			t.Errorf("%+v", r)
		}
		if !soon(func() bool { return !slices.Contains(s.pids(), pid) }) {
			t.Error("the service stays that a client of another build came to")
		}
		if os.Getuid() != 0 {
			return // we cannot be another
		}
		if _, err := s.connect(t, 65534); err != unix.EACCES {
			t.Errorf("another user connects: %v", err)
		}
		if m != asRoot {
			// Root may connect with everybody's, and is served by its own.
			fd, err := s.connect(t, 0)
			if err == nil {
				err = closes(fd)
			}
			if err != nil {
				t.Errorf("root: %v", err)
			}
		}
	})
}

func TestNoServiceWhereItMayNotBe(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for _, c := range []struct {
			name, want string
			make       func(s *service, dir string) []string
		}{
			{"forbidden", "oneshot", func(*service, string) []string { return []string{"SKILLBOX_NO_DAEMON=1"} }},
			{"everybody may look", "is not yours alone", func(s *service, dir string) []string {
				if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
					t.Fatal(err)
				}
				m.own(t, dir)
				return nil
			}},
			{"a link", "open ", func(s *service, dir string) []string {
				if err := os.Symlink(m.dir(t), dir); err != nil {
					t.Fatal(err)
				}
				return nil
			}},
			{"no time", "SKILLBOX_IDLE", func(s *service, _ string) []string {
				s.idle = "soon"
				return nil
			}},
		} {
			s := m.service(t)
			env := c.make(s, s.dir())
			cmd := s.command([]string{"--json"}, m.sharedBundle(t), "true")
			cmd.Env = append(cmd.Env, env...)
			r, err := envelope(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if r.ExitCode != 125 || r.Error == nil || !strings.Contains(r.Error.Message+" "+r.Error.Hint, c.want) {
				t.Errorf("%s: %d, %+v", c.name, r.ExitCode, r.Error)
			}
			if c.name == "everybody may look" && (!strings.Contains(r.Error.Message, s.dir()) || r.Error.Hint == "") {
				t.Errorf("%+v does not say which directory, or what to do", r.Error)
			}
			if all := s.pids(); len(all) > 0 {
				t.Errorf("%s: a service runs: %d", c.name, all)
			}
			if _, err := os.Lstat(s.socket()); err == nil {
				t.Errorf("%s: there is a socket", c.name)
			}
		}
	})
}

// asking is a skill that connects with what a policy shows it.
const asking = `
import glob, socket
s = socket.socket(socket.AF_UNIX)
s.settimeout(5)
try:
    s.connect(glob.glob("/svc/*.sock")[0])
    print("answered" if s.recv(1) else "closed")
except OSError as e:
    print(type(e).__name__)
`

// A policy may show the service's own directory to a skill, which is the caller to everybody who asks the kernel.
func TestASkillIsNoClientOfTheServiceThatRunsIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"ask.py": asking})
		s.run(t, nil, bundle, "true") // the socket is there
		policy := m.file(t, "policy.yaml", "version: 1\nfilesystem: {read: [{host: "+s.dir()+", path: /svc}]}\n")
		if r := s.run(t, []string{"--policy", policy}, bundle, "/usr/bin/python3", "ask.py"); r.Stdout != "closed\n" {
			t.Errorf("the skill's attempt: %q; stderr %s", r.Stdout, r.Stderr)
		}
	})
}

// A service has the network of whoever started it.
func TestACallerWithoutNetworkHasAServiceOfItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		s.run(t, nil, m.sharedBundle(t), "true")
		c := s.command([]string{"--json"}, m.sharedBundle(t), "true")
		c.Args = append([]string{"unshare", "-r", "-n", c.Path}, c.Args[1:]...)
		c.Path = "/usr/bin/unshare"
		if m == asRoot {
			c.Args = slices.Delete(c.Args, 1, 2)
		}
		// With -r the caller has one id and is root there: whether its box can be made is not what is asked here.
		if _, err := envelope(c); err != nil {
			t.Error(err)
		}
		if all := s.pids(); len(all) != 2 {
			t.Errorf("%d services run for two networks", len(all))
		}
	})
}

// Boxes of root's are of different users, also those of one service at one time.
func TestBoxesOfRootsServiceHaveUsersOfTheirOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: an ordinary user's boxes all have that user's ids")
	}
	s := asRoot.service(t)
	bundle := asRoot.sharedBundle(t)
	const calls = 4
	maps, all := make([]string, calls), sync.WaitGroup{}
	for i := range calls {
		all.Go(func() {
			r, err := s.ask(nil, bundle, "sh", "-c", "cat /proc/self/uid_map; sleep 1")
			if err != nil {
				t.Error(err)
				return
			}
			maps[i] = r.Stdout
		})
	}
	all.Wait()
	slices.Sort(maps)
	if maps[0] == "" || len(slices.Compact(slices.Clone(maps))) != calls {
		t.Errorf("the boxes' users are %q", maps)
	}
}
