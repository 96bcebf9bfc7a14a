//go:build linux

package integration

import (
	"slices"
	"strings"
	"testing"
)

func TestTheEnvironmentIsOnlyWhatWasGranted(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var env []string
		call{mode: m, env: []string{"OPENAI_API_KEY=sk-test", "LANG=de_DE.UTF-8", "EXTRA=1"}, policy: "version: 1\nenv: {pass: [EXTRA]}\n"}.probe(t, &env, "environ")
		slices.Sort(env)
		want := []string{"EXTRA=1", "HOME=/home/skill", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin:/run/skillbox/bin", "SKILLBOX_RESULT_FILE=/run/skillbox/result/result.json", "TMPDIR=/tmp", "TZ=UTC"}
		if !slices.Equal(env, want) {
			t.Errorf("got  %v\nwant %v", env, want)
		}
	})
}

func TestCapabilitiesAreEmptyAndFiltersAreOn(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		var status map[string]string
		call{mode: m}.probe(t, &status, "status")
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if strings.Trim(status[set], "0") != "" || status[set] == "" {
				t.Errorf("%s is %q", set, status[set])
			}
		}
		if status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
			t.Errorf("NoNewPrivs %s, Seccomp %s", status["NoNewPrivs"], status["Seccomp"])
		}
	})
}
