package seccomp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Denial is one kind of refused call, counted.
type Denial struct {
	Syscall string // "other" gathers what came after the first 256 kinds
	Detail  string // what the argument was, where one decided: "AF_ALG", "TIOCSTI", "CLONE_NEWUSER"; else empty
	Errno   string // "EPERM"
	Count   int64
	Hint    string // the smallest addition to the policy that would allow it, or why none exists
}

// maxKinds bounds what a skill can make the supervisor remember.
const maxKinds = 256

// tally counts denials. The zero value is ready; it is not safe for concurrent use.
type tally struct {
	kinds map[denialKey]*denied
	other int64
}

type denialKey struct{ name, detail, errno string }

type denied struct {
	first Call // of its kind, for the hint
	count int64
}

func (t *tally) add(k denialKey, c Call) {
	if t.kinds == nil {
		t.kinds = map[denialKey]*denied{}
	}
	d := t.kinds[k]
	if d == nil {
		if len(t.kinds) >= maxKinds {
			t.other++
			return
		}
		d = &denied{first: c}
		t.kinds[k] = d
	}
	d.count++
}

// denials lists what was counted, the most frequent first, "other" last.
func (t *tally) denials(s Spec) []Denial {
	var all []Denial
	for k, d := range t.kinds {
		all = append(all, Denial{Syscall: k.name, Detail: k.detail, Errno: k.errno, Count: d.count, Hint: hint(s, k.name, d.first)})
	}
	slices.SortFunc(all, func(a, b Denial) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Syscall, b.Syscall), strings.Compare(a.Detail, b.Detail))
	})
	if t.other > 0 {
		all = append(all, Denial{Syscall: "other", Count: t.other, Hint: fmt.Sprintf("more than %d kinds of denied calls: these are not told apart", maxKinds)})
	}
	return all
}

// hint says what the operator could add to have the call allowed, in the policy's own words.
func hint(s Spec, name string, c Call) string {
	if slices.Contains(s.Deny, name) {
		return fmt.Sprintf("the policy denies it: remove %s from syscalls.deny", name)
	}
	row := Decide(s, c).Row
	if !row.Final {
		return fmt.Sprintf("syscalls: {allow: [%s]}", name)
	}
	stock := Decide(Spec{}, c)
	if stock.Action == Allow {
		return "syscalls: {profile: default}"
	}
	return "none: " + stock.Row.Reason
}
