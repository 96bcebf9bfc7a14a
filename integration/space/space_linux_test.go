package space

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestASpaceIsAThreadInItsOwnNamespaceUntilItIsClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	outside := namespace(t)
	for range 100 { // so that each thread of the process has its turn, the first one too
		var tid int
		s, err := New(unix.CLONE_NEWNS, func() error { tid = unix.Gettid(); return nil })
		if err != nil {
			t.Fatal(err)
		}
		var inside string
		err = s.Run(func() (err error) {
			if unix.Gettid() != tid || tid == os.Getpid() {
				t.Errorf("runs on thread %d of process %d, entered on %d", unix.Gettid(), os.Getpid(), tid)
			}
			inside, err = os.Readlink("/proc/thread-self/ns/net")
			return err
		})
		var stat unix.Stat_t
		if err := errors.Join(err, unix.Fstat(int(s.NS.Fd()), &stat)); err != nil {
			t.Fatal(err)
		}
		if inside == outside || inside != fmt.Sprintf("net:[%d]", stat.Ino) {
			t.Errorf("it is in %s, NS is %d, and outside is %s", inside, stat.Ino, outside)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if err := s.Run(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		ends(t, tid)
	}
	if now := namespace(t); now != outside {
		t.Errorf("the process is in %s and was in %s", now, outside)
	}
}

func TestAfterAnErrorTheThreadIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	why, tid := errors.New("why"), 0
	if s, err := New(0, func() error { tid = unix.Gettid(); return why }); s != nil || !errors.Is(err, why) {
		t.Fatalf("%v, %v", s, err)
	}
	ends(t, tid)
}

func namespace(t *testing.T) string {
	t.Helper()
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func ends(t *testing.T, tid int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); os.IsNotExist(err) {
			return
		}
		if time.Since(began) > 5*time.Second {
			t.Fatalf("thread %d is still there", tid)
		}
	}
}
