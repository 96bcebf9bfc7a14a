//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/helper"
)

// A bundle that must stay what it is is served by boxes that were prepared from the copy that was checked; never by those of another bundle.
func TestABundleThatMustStayWhatItIsIsServedByReadyBoxes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": inTwoSteps, "second.sh": "echo first\n"})
		first := m.digest(t, bundle)
		swap := func(content string) {
			t.Helper()
			m.write(t, filepath.Join(bundle, "new"), content, 0o644)
			if err := os.Rename(filepath.Join(bundle, "new"), filepath.Join(bundle, "second.sh")); err != nil {
				t.Fatal(err)
			}
		}
		pinned := func(digest string) func() *helper.Result {
			return func() *helper.Result {
				t.Helper()
				return s.run(t, []string{"--require-digest", digest}, bundle, "sh", "second.sh")
			}
		}
		s.warm(t, 3, pinned(first))
		for _, r := range s.status(t).Ready {
			if r.Bundle != bundle {
				t.Errorf("a box is ready for %s, and the caller's bundle is %s", r.Bundle, bundle)
			}
		}

		// The copy that boxes wait with is not the caller's to change.
		b := s.background(t, []string{"--require-digest", first}, bundle, "./main.sh")
		b.expect(t, "ready\n")
		swap("echo second\n")
		fmt.Fprintln(b.stdin)
		if out, code := b.wait(t); code != 0 || out != "first\n" {
			t.Errorf("swapped while it ran: %q, exit code %d\n%s", out, code, b.stderr.String())
		}

		// What lies there now is another bundle, whatever waits.
		r, err := s.ask([]string{"--require-digest", first}, bundle, "sh", "second.sh")
		if err != nil || r.ExitCode != helper.CodeFailed || r.Stdout != "" || r.Error == nil || !strings.Contains(r.Error.Message, first) {
			t.Errorf("a bundle that was replaced: %+v, %v", r, err)
		}
		second := m.digest(t, bundle)
		s.warm(t, 2, func() *helper.Result {
			r := pinned(second)()
			if r.Stdout != "second\n" || r.Skill.Digest != second {
				t.Errorf("%q of %s, want that of %s", r.Stdout, r.Skill.Digest, second)
			}
			return r
		})

		// A session of it is given a ready box, and keeps the copy.
		one := s.session(t, bundle, "--require-digest", second)
		swap("echo third\n")
		one.says(t, "second\n", "sh", "second.sh")
	})
}

// The same where the host asks for signatures, and so wants every bundle to stay what it is.
func TestASignedBundleIsServedByReadyBoxes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		key := m.signer(t)
		hostSays(t, "require_signature_by: ["+key.public+"]\n")
		s := m.service(t)
		bundle := m.bundleOf(t, map[string]string{"main.sh": greeting})
		m.sign(t, key, bundle, "")
		s.warm(t, 3, func() *helper.Result {
			r := s.run(t, nil, bundle, "./main.sh")
			if r.Stdout != "ran\n" || r.Trust == nil || r.Trust.Signature != "valid" {
				t.Errorf("%q, %+v", r.Stdout, r.Trust)
			}
			return r
		})
		m.write(t, filepath.Join(bundle, "main.sh"), "echo unsigned\n", 0o755)
		if r, err := s.ask(nil, bundle, "./main.sh"); err != nil || r.ExitCode != helper.CodeFailed || r.Stdout != "" {
			t.Errorf("a bundle that was changed after it was signed: %+v, %v", r, err)
		}
		m.write(t, filepath.Join(bundle, "main.sh"), greeting, 0o755)
		if err := os.Remove(bundle + ".skillbox.minisig"); err != nil {
			t.Fatal(err)
		}
		if r, err := s.ask(nil, bundle, "./main.sh"); err != nil || r.ExitCode != helper.CodeFailed || r.Stdout != "" {
			t.Errorf("a bundle whose signature is gone: %+v, %v", r, err)
		}
	})
}
