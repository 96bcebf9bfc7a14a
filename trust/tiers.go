package trust

import (
	"bytes"
	_ "embed"

	"skillbox/policy"
)

// The ceilings of tiers where the host's file says nothing else. docs/trust.md shows them.
var (
	//go:embed floor.yaml
	floor []byte
	//go:embed reviewed.yaml
	reviewed []byte
)

// Floor is what an untrusted bundle may have at most.
func Floor() *policy.Policy { return builtin("floor of tier untrusted", floor) }

// ReviewedCeiling is what a reviewed bundle may have at most, unless the host says.
func ReviewedCeiling() *policy.Policy { return builtin("default of tier reviewed", reviewed) }

func builtin(name string, text []byte) *policy.Policy {
	p, err := policy.Parse(name, bytes.TrimSpace(text))
	if err != nil {
		panic("trust: a table of the program: " + err.Error())
	}
	return p
}
