package mcp

import (
	"syscall"
	"testing"
	"time"

	"skillbox/client"
)

func TestAnAnswerDoesNotWaitForWhoeverHoldsTheSkillsStderr(t *testing.T) {
	var c client.Call
	p := &reporter{token: 1, lines: true, told: time.Now().Add(time.Hour)} // nothing is told
	lines, err := p.begin(&c)
	if err != nil {
		t.Fatal(err)
	}
	held, err := syscall.Dup(int(c.Stderr.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(held)
	if _, err := c.Stderr.WriteString("a line\nand part"); err != nil {
		t.Fatal(err)
	}
	type end struct {
		kept string
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		kept, err := lines()
		ended <- end{kept, err}
	}()
	select {
	case e := <-ended:
		if e.kept != "a line\nand part" || e.err != nil {
			t.Errorf("%q, %v", e.kept, e.err)
		}
	case <-time.After(linger + 10*time.Second):
		t.Error("it waits still")
	}
}
