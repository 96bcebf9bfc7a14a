package observe

import (
	"fmt"
	"strings"
	"testing"

	"skillbox/audit"
)

func remembering() *Observer {
	return &Observer{index: map[string]int{}, full: make(chan struct{}, 1)}
}

// Words are counted together only where they are the same words.
func TestWhatDiffersByWhereAWordEndsIsTwoRecords(t *testing.T) {
	o := remembering()
	for _, argv := range [][]string{{"rm", "x"}, {"rm x"}, {"rm", "x"}, {"rm", "x "}, {"rm", `x" "y`}, {"rm", "x", "y"}} {
		o.note(audit.Exec{PID: 2, Path: "/bin/rm", Argv: argv})
	}
	all := o.Take()
	if len(all) != 5 || all[0].Detail.(audit.Exec).Count != 2 {
		t.Errorf("%+v", all)
	}
}

// Long words do not make the records of a call take more memory than short ones.
func TestRecordsAreBoundedInBytes(t *testing.T) {
	o := remembering()
	long := strings.Repeat("x", 12<<10)
	told, taken := 0, 0
	for i := range 3000 {
		o.note(audit.Exec{PID: i, Argv: []string{long}})
		select {
		case <-o.Full():
			all := o.Take()
			if size := len(all) * len(long); size > maxWaitingBytes {
				t.Fatalf("%d bytes wait", size)
			}
			told += len(all)
			taken++
		default:
		}
	}
	told += len(o.Take())
	if size := told * len(long); size > maxSeenBytes || size < maxSeenBytes*9/10 || taken < 2 {
		t.Errorf("%d bytes are remembered of one call, taken %d times", size, taken)
	}
	if dropped := o.Restart(); int(dropped) != 3000-told {
		t.Errorf("%d dropped of 3000, %d told", dropped, told)
	}
	o.note(audit.Exec{Path: "/bin/true"})
	if len(o.Take()) != 1 {
		t.Error("another call finds no room")
	}
	for i := range 1000 { // nobody takes
		o.note(audit.Exec{PID: i, Path: fmt.Sprint(i), Argv: []string{long}})
	}
	if size := len(o.Take()) * len(long); size > maxWaitingBytes {
		t.Errorf("%d bytes wait", size)
	}
}
