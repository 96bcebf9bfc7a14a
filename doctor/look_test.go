package doctor

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also its own child, as skillbox is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildArg {
		os.Exit(Child(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestAnAttemptReportsTheCallAndTheErrno(t *testing.T) {
	// Nobody may idmap a directory that is not there, whatever the machine.
	got := try(context.Background(), "idmap", "/nonexistent")
	if got.Call == "clone" { // an ordinary user may not make a mount namespace alone
		if got.Errno != unix.EPERM {
			t.Errorf("got %+v", got)
		}
		return
	}
	if got.Call != "open" || got.Errno != unix.ENOENT {
		t.Errorf("got %+v", got)
	}
}

func TestEveryAttemptAnswers(t *testing.T) {
	f := &Facts{Tries: map[string]Try{}}
	f.tryAll(context.Background())
	for name, got := range f.Tries {
		if !got.Tried || (!got.worked() && got.Errno == 0) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(f.Tries) != len(attempts())-2 {
		t.Errorf("%d tries", len(f.Tries))
	}
}

func TestAFilterStaysInItsChild(t *testing.T) {
	before := &Facts{}
	before.lookAtUs()
	try(context.Background(), "seccomp")
	after := &Facts{}
	after.lookAtUs()
	if before.Seccomp != after.Seccomp {
		t.Error("the filter is on us")
	}
}

func TestAChildThatHangsIsKilled(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	stop := killAfter(ctx, c.Process)
	began := time.Now()
	err := c.Wait()
	if !stop() || err == nil || time.Since(began) > Deadline {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestOneHarmlessCallOfEachIsEnough(t *testing.T) {
	calls := tryCalls()
	for name := range callSince {
		if _, tried := calls[name]; !tried {
			t.Errorf("%s is not tried", name)
		}
	}
}
