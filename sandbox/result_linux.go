package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/seccomp"
)

// result words what happened. Only what we did counts as our verdict: an exit code of 124 or 137 by the skill is just that.
func (b *Box) result(exit *boxinit.Exit, end *ending, began time.Time) *helper.Result {
	r := b.envelope(began)
	verdict, message := end.get()
	if exit != nil {
		status := unix.WaitStatus(exit.Status)
		r.Usage.UserMS, r.Usage.SystemMS = float64(exit.UserUS)/1000, float64(exit.SystemUS)/1000
		r.Usage.MaxRSS = exit.MaxRSS
		switch {
		case status.Exited():
			r.Verdict, r.ExitCode = helper.Exited, status.ExitStatus()
			r.Success = r.ExitCode == 0
		case status.Signaled():
			r.Verdict, r.ExitCode = helper.Signaled, 128+int(status.Signal())
			r.Signal = unix.SignalName(status.Signal())
			if status.Signal() == unix.SIGSYS {
				setVerdict(r, helper.SyscallKilled, "the seccomp filter killed the skill: a call of a foreign architecture, or one that is never allowed")
			}
		}
	} else {
		// Init is gone without a word: killed by us, or by the kernel for memory.
		r.Verdict, r.ExitCode, r.Signal = helper.Signaled, 128+int(unix.SIGKILL), "SIGKILL"
		r.Error = &helper.Error{Message: "the sandbox was killed from outside", Hint: "the machine may be out of memory: see the kernel's log"}
	}
	if verdict != "" {
		setVerdict(r, verdict, message)
	}
	b.addDenials(r)
	return r
}

// used reads the group's counters when the box's processes are gone, and finds out whether a limit ended them.
func (b *Box) used(exit *boxinit.Exit, end *ending) (*cgroup.Usage, error) {
	if b.group == nil {
		return nil, nil
	}
	u, err := b.group.Usage()
	if err != nil {
		return nil, err
	}
	if u.OOMKills != nil && *u.OOMKills > 0 {
		if u.OOMs != nil && *u.OOMs > 0 {
			end.set(helper.OutOfMemory, "the skill needed more than its %d bytes of memory (resources.memory), scratch space included", b.Plan.Group.Memory)
		} else {
			end.set(helper.OutOfMemory, "the machine, or a group that the sandbox lies in, ran out of memory, and the kernel chose the sandbox")
		}
	}
	if exit == nil && u.PidsRefused != nil && *u.PidsRefused > 0 {
		b.tooMany(end) // init itself was refused what it needed
	}
	return u, nil
}

func (b *Box) tooMany(end *ending) {
	end.set(helper.PidsLimit, "the skill went on forking after %d processes and threads, which is the limit (resources.pids)", b.Plan.Group.Pids)
}

// addUsage puts the kernel's counters into the envelope.
func (b *Box) addUsage(r *helper.Result, u *cgroup.Usage) {
	if u == nil {
		return
	}
	to := &r.Usage
	to.UserMS, to.SystemMS = float64(u.UserUS)/1000, float64(u.SystemUS)/1000
	to.MemoryPeak, to.OOMKills, to.PidsPeak, to.PidsRefused = u.MemoryPeak, u.OOMKills, u.PidsPeak, u.PidsRefused
	if u.ThrottledUS != nil {
		ms := float64(*u.ThrottledUS) / 1000
		to.Throttled = &ms
	}
	if u.Disk != nil {
		to.IO = (*helper.IO)(u.Disk)
	}
	if u.PressureCPU != nil && u.PressureMemory != nil && u.PressureIO != nil {
		to.Pressure = &helper.Pressure{CPUMS: float64(*u.PressureCPU) / 1000, MemoryMS: float64(*u.PressureMemory) / 1000, IOMS: float64(*u.PressureIO) / 1000}
	}
	if u.PidsRefused != nil && *u.PidsRefused > 0 && r.Verdict != helper.PidsLimit {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d times a process or thread was refused at the limit of %d (resources.pids)", *u.PidsRefused, b.Plan.Group.Pids))
	}
}

var verdictCodes = map[string]int{
	helper.TimedOut: helper.CodeTimedOut, helper.OutOfMemory: helper.CodeOutOfMemory, helper.PidsLimit: helper.CodePidsLimit, helper.OutputLimit: helper.CodeOutputLimit,
	helper.SyscallKilled: helper.CodeSyscallKilled, helper.Canceled: helper.CodeCanceled, helper.Failed: helper.CodeFailed,
}

func setVerdict(r *helper.Result, verdict, message string) {
	r.Success = false
	r.Verdict, r.ExitCode = verdict, verdictCodes[verdict]
	r.Error = &helper.Error{Message: message}
}

// neverStarted is the result of a call that was ended by us before its command ran.
func (b *Box) neverStarted(verdict, message string, began time.Time) *helper.Result {
	r := b.envelope(began)
	setVerdict(r, verdict, message)
	return r
}

// notStarted is the result of a command that could not be executed.
func (b *Box) notStarted(s *boxinit.Started, began time.Time) *helper.Result {
	r := b.envelope(began)
	r.Verdict, r.ExitCode = helper.Failed, s.Code
	r.Error = &helper.Error{Message: s.Error}
	b.addDenials(r)
	return r
}

func (b *Box) envelope(began time.Time) *helper.Result {
	r := &helper.Result{ID: b.ID, Phases: b.Phases, Sandbox: helper.Sandbox{Mode: b.Plan.Mode, Layers: b.Plan.Layers, Image: b.Plan.ImageDigest(), Start: b.Start}}
	r.Warnings = append(r.Warnings, b.Plan.Warnings...)
	r.Phases["run_ms"] = Since(began)
	return r
}

func (b *Box) addDenials(r *helper.Result) {
	defer b.watched.told(r)
	if b.supervisor == nil {
		return
	}
	denials := b.supervisor.Denials
	if b.session != nil {
		denials = b.supervisor.Take
	}
	r.Denials = append(r.Denials, b.refusedCalls(denials())...)
}

// Refused returns what tells, while Run runs, what the skill was refused so far: system calls, and ways of the network. It must be asked for before Run.
func (b *Box) Refused() func() []helper.Denial {
	supervisor, way := b.supervisor, b.network.gateway
	return func() (all []helper.Denial) {
		if supervisor != nil {
			all = b.refusedCalls(supervisor.Denials())
		}
		if way != nil {
			all = append(all, refusedWays(way.Report().Denials)...)
		}
		return all
	}
}

func (b *Box) refusedCalls(denials []seccomp.Denial) (all []helper.Denial) {
	for _, d := range denials {
		what := d.Syscall
		if d.Detail != "" {
			what = fmt.Sprintf("%s(%s)", d.Syscall, d.Detail)
		}
		all = append(all, helper.Denial{
			Kind: "syscall", What: what, Rule: "syscalls.profile " + b.Plan.Seccomp.Profile + ": " + d.Errno, Hint: d.Hint, Count: d.Count,
			Name: d.Syscall, Detail: d.Detail, Errno: d.Errno,
		})
	}
	return all
}
