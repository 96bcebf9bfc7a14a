//go:build linux && cgo

package seccomp

import (
	"embed"
	"runtime"
)

// stockPrograms holds the profiles as they stand, compiled ahead, so that a one-shot run does not wait for libseccomp. A
// test proves each equal to what Compile would make of it.
//
//go:embed programs/*.bpf
var stockPrograms embed.FS

// stock returns the ready-made program for a Spec without words of its own, or nil where there is none: arm64 compiles
// every time.
func stock(s Spec) *Program {
	if len(s.Allow)+len(s.Deny) > 0 {
		return nil
	}
	code, err := stockPrograms.ReadFile("programs/" + stockName(s))
	if err != nil {
		return nil
	}
	p := &Program{Filters: [][]byte{code}, Listener: -1}
	if s.listens() {
		p.Listener = 0
	}
	return p
}

func stockName(s Spec) string {
	name := s.Profile
	if name == "" {
		name = "default"
	}
	if s.Report {
		name += "-report"
	}
	if s.Calls != "" {
		name += "-calls-" + s.Calls
	}
	if s.Files != "" {
		name += "-files-" + s.Files
	}
	return name + "-" + runtime.GOARCH + ".bpf"
}
