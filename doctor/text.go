package doctor

import (
	"fmt"
	"strings"
)

var words = map[string]string{OK: "ok", Warn: "warn", Fail: "FAIL"}

var colours = map[string]string{OK: "\x1b[32m", Warn: "\x1b[33m", Fail: "\x1b[31;1m"}

// Text is the report for people.
func (r *Report) Text(colour bool) string {
	var b strings.Builder
	for _, f := range r.Findings {
		word := fmt.Sprintf("%-4s", words[f.Status])
		if colour {
			word = colours[f.Status] + word + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s %s: %s\n", word, f.Name, strings.ReplaceAll(f.Detail, "\n", "; "))
		if f.Status == OK {
			continue
		}
		fmt.Fprintf(&b, "     needed for: %s\n", f.Need)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "     remedy: %s\n", strings.ReplaceAll(f.Remedy, "\n", "\n             "))
		}
	}
	for _, name := range []string{modeRootless, modeRoot} {
		m := r.Modes[name]
		fmt.Fprintf(&b, "%s: %s", name, m.State)
		if m.Detail != "" {
			fmt.Fprintf(&b, " (%s)", m.Detail)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
