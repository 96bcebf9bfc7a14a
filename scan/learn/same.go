package learn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skillbox/client"
)

// facts are what a run came to, by where it stands: "verdict", "exit code", "result.total" or "stdout line 3".
type facts map[string]string

// maxFacts bounds what a skill can make us compare.
const maxFacts = 10_000

// factsOf takes the result where the skill gave one as JSON, and its standard output otherwise. Standard error is for people, and not compared.
func factsOf(r *client.Result) facts {
	f := facts{"verdict": r.Verdict, "exit code": fmt.Sprint(r.ExitCode)}
	if value, ok := jsonOf(r.Result); ok {
		f.add("result", value)
		return f
	}
	for i, line := range strings.Split(r.Stdout, "\n") {
		f.set(fmt.Sprintf("stdout.line %d", i+1), line)
	}
	return f
}

func jsonOf(text json.RawMessage) (value any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // every digit counts
	return value, len(text) > 0 && d.Decode(&value) == nil && value != nil
}

func (f facts) add(at string, value any) {
	switch v := value.(type) {
	case map[string]any:
		f.set(at+".", fmt.Sprint(len(v), " keys"))
		for _, key := range slices.Sorted(maps.Keys(v)) { // the first ones count
			f.add(at+"."+key, v[key])
		}
	case []any:
		f.set(at+".", fmt.Sprint(len(v), " items"))
		for i, one := range v {
			f.add(fmt.Sprintf("%s.%d", at, i), one)
		}
	default:
		f.set(at, fmt.Sprint(v))
	}
}

func (f facts) set(at, value string) {
	if len(f) < maxFacts {
		f[at] = value
	}
}

// expected is what runs of one kind come to.
type expected struct {
	facts  facts
	varies map[string]bool // what is not the same in every run; a place ending in a dot stands for all below it
}

// expect learns from runs that should be the same. It changes nothing of what it knew.
func (e *expected) expect(f facts) {
	if e.facts == nil {
		e.facts, e.varies = f, map[string]bool{}
		return
	}
	for _, at := range e.differing(f) {
		e.varies[at] = true
	}
}

// differing lists where a run differs from what is expected. A place that only one of both has makes all beside it differ.
func (e *expected) differing(f facts) []string {
	found := map[string]bool{}
	for at := range f {
		if _, there := e.facts[at]; !there {
			found[parent(at)] = true
		}
	}
	for at, was := range e.facts {
		if is, there := f[at]; !there {
			found[parent(at)] = true
		} else if is != was {
			found[at] = true
		}
	}
	maps.DeleteFunc(found, func(at string, _ bool) bool { return e.known(at) })
	return slices.Sorted(maps.Keys(found))
}

// known tells whether a place is one that varies.
func (e *expected) known(at string) bool {
	if e.varies[at] {
		return true
	}
	for i, c := range at {
		if c == '.' && e.varies[at[:i+1]] {
			return true
		}
	}
	return false
}

func parent(at string) string {
	if i := strings.LastIndexByte(strings.TrimSuffix(at, "."), '.'); i >= 0 {
		return at[:i+1]
	}
	return at
}
