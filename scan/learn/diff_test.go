package learn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/policy"
	"skillbox/scan"
)

func TestDiff(t *testing.T) {
	a := strings.Split("one two three four five six seven eight nine ten eleven twelve", " ")
	b := strings.Split("one 2 three four five six seven eight nine ten eleven twelve 13", " ")
	want := "--- a\n+++ b\n@@ -1,5 +1,5 @@\n one\n-two\n+2\n three\n four\n five\n@@ -10,3 +10,4 @@\n ten\n eleven\n twelve\n+13\n"
	if got := unified(a, b, "a", "b"); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if got := unified(a, a, "a", "b"); got != "" {
		t.Errorf("%s", got)
	}
}

// patch(1) makes the one of the other.
func TestDiffIsOneForPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("needs patch")
	}
	texts := [][]string{
		{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
		{"a"},
		{"x", "b", "c", "d", "e", "f", "g", "h", "i", "y"},
		{"a", "c", "e", "g", "i"},
		{"j", "i", "h", "g", "f", "e"},
		{"a", "b", "c", "d", "new", "e", "f", "g", "h", "i", "j"},
		{"a", "a", "b", "b", "j"},
	}
	for i, a := range texts {
		for j, b := range texts {
			if i == j {
				continue
			}
			at := filepath.Join(t.TempDir(), "a")
			if err := os.WriteFile(at, []byte(strings.Join(a, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := exec.Command("patch", "-s", "-F0", at)
			c.Stdin = strings.NewReader(unified(a, b, "a", "b"))
			out, err := c.CombinedOutput()
			got, _ := os.ReadFile(at)
			if err != nil || string(got) != strings.Join(b, "\n")+"\n" {
				t.Errorf("%q to %q: %v %s\n%s", a, b, err, out, got)
			}
		}
	}
}

func TestWhatIsUnusedAndWhatIsMissing(t *testing.T) {
	parse := func(text string) *policy.Policy {
		p, err := policy.Parse("", []byte("version: 1\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	current := parse(`env: {pass: [A, B]}
network: {egress: [{domains: ["*.x.example", old.example], ports: [443]}, {cidrs: [10.0.0.0/8], ports: [22, 80]}]}
timeout: 1m
`)
	learned := parse(`env: {pass: [B, C]}
network: {egress: [{domains: [api.x.example, new.example], ports: [443]}, {cidrs: [10.0.0.0/8], ports: [80]}]}
timeout: 5s
syscalls: {profile: strict, allow: [ socket ]}
`)
	var got []string
	for _, d := range compare(current, learned, []Wish{{Key: "syscalls.allow", Value: "ptrace"}}) {
		got = append(got, fmt.Sprintf("%s %s %v", d.Key, d.Value, d.Declared))
	}
	want := []string{
		"env.pass A true", "env.pass C false",
		"network.egress {domains: [old.example], ports: [443]} true", `network.egress {cidrs: ["10.0.0.0/8"], ports: [22]} true`,
		"network.egress {domains: [new.example], ports: [443]} false",
		"timeout 60000ms true", "timeout 5000ms false",
		"syscalls.allow socket false", "syscalls.allow ptrace false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := compare(current, current, nil); !slices.Equal(same, []scan.Difference{}) {
		t.Errorf("%v", same)
	}
}
