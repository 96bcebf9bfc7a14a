package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestABoxHasANameThatTellsNothing(t *testing.T) {
	const filtered = "a seccomp filter refuses sethostname (operation not permitted)"
	for _, c := range []struct {
		name            string
		host            *Host
		policy          string
		seen, set, hint string // set is what is to be set, "" for nothing; hint is of the refusal
		warns           bool
	}{
		{"elsewhere", &Host{Name: "build-7"}, "version: 1\n", "skillbox", "skillbox", "", false},
		{"in a sinkhole", &Host{Name: "build-7"}, "version: 1\nnetwork: {sinkhole: true}\n", "server", "server", "", false},
		{"in a container that is named as boxes are", &Host{Name: "skillbox", Unnamable: filtered}, "version: 1\n", "skillbox", "", "", false},
		{"in one that is named as many are", &Host{Name: "server", Unnamable: filtered}, "version: 1\n", "server", "", "", false},
		{"a sinkhole there", &Host{Name: "server", Unnamable: filtered}, "version: 1\nnetwork: {sinkhole: true}\n", "server", "", "", false},
		{"a sinkhole in one that tells of skillbox", &Host{Name: "skillbox", Unnamable: filtered}, "version: 1\nnetwork: {sinkhole: true}\n", "", "", "--hostname server", false},
		{"in one with a name", &Host{Name: "build-7", Unnamable: filtered}, "version: 1\n", "", "", "--hostname server", false},
		{"where best-effort is enough", &Host{Name: "build-7", Unnamable: filtered}, "version: 1\nenforcement: best-effort\n", "build-7", "", "", true},
	} {
		plan := &Plan{OCI: &specs.Spec{}}
		seen, err := plan.name(c.host, parsed(t, c.policy))
		var refusal *Refusal
		if c.hint != "" {
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Message, c.host.Name) || !strings.Contains(refusal.Hint, c.hint) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || seen != c.seen || plan.OCI.Hostname != c.set || (len(plan.Warnings) == 1) != c.warns {
			t.Errorf("%s: %q, set %q, %q, %v", c.name, seen, plan.OCI.Hostname, plan.Warnings, err)
		}
	}
}
