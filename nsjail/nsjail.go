// Package nsjail runs one box's init in fresh namespaces on runc's libcontainer, in two steps: Prepare ends with init running
// inside every layer, verified and waiting; Jail.Start and Jail.Wait are one call. It is the only importer of libcontainer.
//
// Libcontainer gets no stdio of a caller's (it would change its owner), no seccomp profile (it cannot set the action for foreign
// architectures, and only one filter) and no limits for the cgroup that it moves init to (package cgroup's business).
package nsjail

import (
	"net/netip"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Description says what to start. Of Spec only what this package supports is used: root path, hostname, process user, rlimits,
// namespaces, id mappings, sysctls, masked and read-only paths, cgroup path. Anything else in it is refused.
type Description struct {
	ID       string // unique in StateDir: letters, digits, '-', '_'
	StateDir string // libcontainer's, on a private tmpfs of the caller's
	Spec     *specs.Spec
	Filters  [][]byte // seccomp programs for init to install, see boxinit.Setup
	Listener int
	// NeverReached is for init, see boxinit.Setup; nil where there is no way out.
	NeverReached []netip.Addr
	// Ready, unless nil, is waited for before init looks at what it is in: the network that Spec names may be made ready meanwhile. Its
	// error is Prepare's. It is not called where Prepare fails before.
	Ready func() error
}

// VerifyError says which layers do not hold. The skill was not started.
type VerifyError struct{ Problems []string }

func (e *VerifyError) Error() string {
	text := "nsjail: the sandbox does not hold what was asked"
	for _, p := range e.Problems {
		text += "; " + p
	}
	return text
}
