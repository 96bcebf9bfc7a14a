package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/boxinit"
	"skillbox/helper"
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

var verdictCodes = map[string]int{
	helper.TimedOut: helper.CodeTimedOut, helper.OutOfMemory: helper.CodeOutOfMemory, helper.OutputLimit: helper.CodeOutputLimit,
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
	r := &helper.Result{ID: b.ID, Phases: b.Phases, Sandbox: helper.Sandbox{Mode: b.Plan.Mode, Layers: b.Plan.Layers}}
	r.Warnings = append(r.Warnings, b.Plan.Warnings...)
	r.Phases["run_ms"] = Since(began)
	return r
}

func (b *Box) addDenials(r *helper.Result) {
	if b.supervisor == nil {
		return
	}
	for _, d := range b.supervisor.Denials() {
		what := d.Syscall
		if d.Detail != "" {
			what = fmt.Sprintf("%s(%s)", d.Syscall, d.Detail)
		}
		r.Denials = append(r.Denials, helper.Denial{
			Kind: "syscall", What: what, Rule: "syscalls.profile " + b.Plan.Seccomp.Profile + ": " + d.Errno, Hint: d.Hint, Count: d.Count,
		})
	}
}
