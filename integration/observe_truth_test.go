//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"skillbox/audit"
)

// The first process of a box has init as its parent, and can name init's own paths: nothing starts by them unseen.
func TestNoProgramStartsUnseenByInitsOwnPath(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: observing, flags: slow(30 * time.Second), words: []string{"/skill/probe", "race-own-exec", fmt.Sprint(load(300))}}.run(t)
		var ran []string
		if err := json.Unmarshal([]byte(r.Stdout), &ran); err != nil {
			t.Fatalf("%v: %s %s %s", err, r.Verdict, r.Stdout, r.Stderr)
		}
		told := map[string]bool{}
		for _, e := range seen[audit.Exec](recorded(t, m, r.ID)) {
			if len(e.Argv) > 3 && slices.Contains(e.Argv, "race-own-exec") {
				told[e.Argv[3]] = true
			}
		}
		for _, attempt := range ran {
			if !told[attempt] {
				t.Errorf("attempt %s started a program, and nothing says so", attempt)
			}
		}
		t.Logf("%d attempts ran, %d are told", len(ran), len(told))
	})
}
