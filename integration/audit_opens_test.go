//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"
)

// Each open that is made in a skill's place gives it a descriptor of its own, however many there are and whoever is interrupted meanwhile: once in
// some ten thousand it was 0, the skill's standard input.
func TestEachObservedOpenGivesADescriptor(t *testing.T) {
	const script = `
import os
for i in range(%d):
    fd = os.open("/etc/hosts", os.O_RDONLY)
    assert fd > 2, (i, fd)
    os.close(fd)
print(os.fstat(0) is not None)`
	inEachMode(t, func(t *testing.T, m mode) {
		r := call{mode: m, policy: "version: 1\nenforcement: best-effort\ntimeout: 2m\naudit: {syscalls: security, files: all}\n", words: []string{"/usr/bin/python3", "-c", fmt.Sprintf(script, load(20000))}}.run(t)
		if !r.Success || strings.TrimSpace(r.Stdout) != "True" {
			t.Errorf("%s %d, %s%s", r.Verdict, r.ExitCode, r.Stdout, r.Stderr)
		}
	})
}
