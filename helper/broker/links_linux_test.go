package broker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// namespacesOf starts a process in namespaces of its own and opens its network namespace.
func namespacesOf(t *testing.T, flags uintptr) (net *os.File, user namespace) {
	t.Helper()
	c := exec.Command("/bin/cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Skipf("needs namespaces: %v", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	if net, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	if user, err = namespaceOf(fmt.Sprintf("/proc/%d/ns/user", c.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	return net, user
}

func TestThreat241HostNetnsFD(t *testing.T) {
	own, user := namespacesOf(t, unix.CLONE_NEWUSER|unix.CLONE_NEWNET)
	others, _ := namespacesOf(t, unix.CLONE_NEWUSER|unix.CLONE_NEWNET)
	if err := ownedBy(int(own.Fd()), user); err != nil {
		t.Errorf("a namespace of the worker's own: %v", err)
	}
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	pipe := make([]int, 2)
	if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A file that is called like a namespace.
	named := t.TempDir() + "/net:[4026531840]"
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]int{
		"the machine's": open("/proc/self/ns/net", unix.O_RDONLY), "another worker's": int(others.Fd()), "a mount namespace": open("/proc/self/ns/mnt", unix.O_RDONLY),
		"a user namespace": open("/proc/self/ns/user", unix.O_RDONLY), "the own, by O_PATH": open(fmt.Sprintf("/proc/self/fd/%d", own.Fd()), unix.O_PATH),
		"a directory": open("/", unix.O_RDONLY), "a device": open("/dev/null", unix.O_RDONLY), "a pipe": pipe[0], "a socket": socket,
		"a file with a namespace's name": open(named, unix.O_RDONLY), "nothing": 1 << 20,
	} {
		if err := ownedBy(fd, user); err == nil {
			t.Errorf("%s is taken for a network namespace of the worker's", name)
		}
	}
}

func TestAWorkerThatAsksForWhatItMayNotIsAnError(t *testing.T) {
	own, user := namespacesOf(t, unix.CLONE_NEWUSER|unix.CLONE_NEWNET)
	others, _ := namespacesOf(t, unix.CLONE_NEWUSER|unix.CLONE_NEWNET)
	b, w := &Broker{}, &worker{userns: user}
	good := Link{ID: "0123456789abcdef"}
	for name, c := range map[string]struct {
		ask   Ask
		files []int
	}{
		"nothing":                     {Ask{}, nil},
		"a link without a descriptor": {Ask{Link: &good}, nil},
		"a link with two":             {Ask{Link: &good}, []int{int(own.Fd()), int(own.Fd())}},
		"another's namespace":         {Ask{Link: &good}, []int{int(others.Fd())}},
		"a name that is none":         {Ask{Link: &Link{ID: "eth0; flush ruleset"}}, []int{int(own.Fd())}},
		"an errand with a descriptor": {Ask{Linkable: true}, []int{int(own.Fd())}},
		"too many ranges":             {Ask{Link: &Link{ID: good.ID, Opened: make([]netip.Prefix, maxOpened+1)}}, []int{int(own.Fd())}},
	} {
		if _, err := b.errand(w, &c.ask, c.files); err == nil {
			t.Errorf("%s is done", name)
		}
	}
	if r, err := b.errand(w, &Ask{Unlink: "no such box"}, nil); err != nil || r.Error != "" {
		t.Errorf("to end what has ended: %v, %s", err, r.Error)
	}
}

func TestThreat244NftInjection(t *testing.T) {
	if err := (&Link{ID: "0123456789abcdef", Opened: []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32")}}).check(); err != nil {
		t.Errorf("a box's own: %v", err)
	}
	for _, id := range []string{
		"", "0", "0123456789abcde", "0123456789abcdef0", strings.Repeat("a", 200), "0123456789abcde\"", "0123456789abcde;", "0123456789abcde\n", "0123456789abcde\x00",
		"0123456789ABCDEF", "0123456789abcde ", "../../../../etc/", "0123456789abcdéf", "0123456789abcdei", "%d%d%d%d%d%d%d%d", "{ drop } } table ",
	} {
		if err := (&Link{ID: id}).check(); err == nil {
			t.Errorf("%q is taken for a box's id", id)
		}
	}
	for _, p := range []netip.Prefix{{}, netip.PrefixFrom(netip.MustParseAddr("10.1.2.3"), 8), netip.PrefixFrom(netip.MustParseAddr("10.1.2.3"), 99)} {
		if err := (&Link{ID: "0123456789abcdef", Opened: []netip.Prefix{p}}).check(); err == nil {
			t.Errorf("%v is taken for a range", p)
		}
	}
}

func FuzzLink(f *testing.F) {
	f.Add("0123456789abcdef", []byte{10, 0, 0, 0}, 8)
	f.Add("a\"; drop table x", []byte{0xfd}, 200)
	name := regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{16}$`)
	f.Fuzz(func(t *testing.T, id string, address []byte, bits int) {
		a, _ := netip.AddrFromSlice(address)
		l := Link{ID: id, Opened: []netip.Prefix{netip.PrefixFrom(a, bits)}}
		if l.check() == nil && (!name.MatchString(id) || !l.Opened[0].IsValid() || l.Opened[0].Addr() != a) {
			t.Errorf("%q, %v", id, l.Opened)
		}
	})
}

func TestNoTwoWorkersHaveTheSameBlock(t *testing.T) {
	var b blocks
	seen := map[uint32]bool{}
	for range 1000 {
		one, err := b.take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[one.first] || one.first < firstID || one.first > 0x7fffffff-blockSize+1 || (one.first-firstID)%blockSize != 0 {
			t.Errorf("%#x", one.first)
		}
		seen[one.first] = true
	}
	b = blocks{taken: map[uint32]bool{}}
	for n := range uint32(blockIDs) {
		b.taken[n] = true
	}
	if _, err := b.take(); err == nil {
		t.Error("a block was given out twice")
	}
	b.give(block{firstID + 5*blockSize})
	var err error
	for range 1000 {
		if _, err = b.take(); err == nil {
			break
		}
	}
	if err != nil {
		t.Error(errors.New("a block that was given back is not given out"))
	}
}
