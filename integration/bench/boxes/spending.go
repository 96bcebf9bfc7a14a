//go:build linux

package main

import (
	"golang.org/x/sys/unix"

	"skillbox/sandbox"
)

// spending is the processor time of one box in milliseconds, the mean of many that came one after the other: this process's own, and that of
// the processes which ended and were waited for.
type spending struct {
	Boxes                     int
	Prepare, Run              cost    // Run takes the box away, too
	Tree, Network, Jail, Wall float64 // time that passed, by parts of Prepare
	Starting, InTheBox        float64 // of processes that ended before the box was ready, and after
}

type cost struct{ User, System float64 }

// spend prepares boxes, runs a program in each and closes them.
func spend(h *sandbox.Host, plan *sandbox.Plan, n int) (*spending, error) {
	s := &spending{Boxes: n}
	for i := range n + 1 {
		if i == 1 { // the first makes what all share
			*s = spending{Boxes: n}
		}
		clock, children := own(unix.RUSAGE_SELF), own(unix.RUSAGE_CHILDREN)
		b, err := prepare(h, plan)
		if err != nil {
			return nil, err
		}
		s.Prepare.add(clock, own(unix.RUSAGE_SELF))
		ready := own(unix.RUSAGE_CHILDREN)
		s.Starting += ready.User + ready.System - children.User - children.System
		s.Tree, s.Network, s.Jail, s.Wall = s.Tree+b.Phases["tree_ms"], s.Network+b.Phases["network_ms"], s.Jail+b.Phases["jail_ms"], s.Wall+b.Phases["prepare_ms"]
		clock = own(unix.RUSAGE_SELF)
		if err := call(b); err != nil {
			return nil, err
		}
		s.Run.add(clock, own(unix.RUSAGE_SELF))
		ended := own(unix.RUSAGE_CHILDREN)
		s.InTheBox += ended.User + ended.System - ready.User - ready.System
	}
	for _, sum := range []*float64{
		&s.Prepare.User, &s.Prepare.System, &s.Run.User, &s.Run.System, &s.Tree, &s.Network, &s.Jail, &s.Wall, &s.Starting, &s.InTheBox,
	} {
		*sum /= float64(n)
	}
	return s, nil
}

func own(who int) cost {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil { // which cannot fail for these
		return cost{}
	}
	return cost{float64(u.Utime.Nano()) / 1e6, float64(u.Stime.Nano()) / 1e6}
}

func (c *cost) add(from, to cost) {
	c.User += to.User - from.User
	c.System += to.System - from.System
}
