package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"skillbox/audit"
)

// text is something that a stranger may have chosen: its beginning, and all of it, where that is longer, to be unfolded.
type text struct {
	Head, Whole string
	Left        int // bytes that even Whole has not
}

const (
	headBytes  = 240
	wholeBytes = 2048
)

// textOf shows a text as the log has it.
func textOf(s string) text {
	s = audit.Show(s)
	if len(s) <= headBytes {
		return text{Head: s}
	}
	whole := begin(s, wholeBytes)
	return text{begin(s, headBytes), whole, len(s) - len(whole)}
}

// short is a text for a place that has room for one line only.
func short(s string, max int) string {
	s = audit.Show(s)
	if len(s) <= max {
		return s
	}
	return begin(s, max) + "…"
}

// begin keeps characters whole.
func begin(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

func (t text) cost() int { return escaped(t.Head) + escaped(t.Whole) }

// escaped is how long a text becomes in the page.
func escaped(s string) int { return len(template.HTMLEscapeString(s)) }

// budget is how many bytes a list may still get.
type budget int

func (b *budget) take(n int) bool {
	if n > int(*b) {
		return false
	}
	*b -= budget(n)
	return true
}

// duration has three digits or so.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

func milliseconds(ms float64) string { return duration(time.Duration(ms * float64(time.Millisecond))) }

func bytesOf(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[unit])
}

// number has a comma before each three digits.
func number[N int | int64 | uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// some is "1 run" or "12 runs".
func some[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// listed is "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
