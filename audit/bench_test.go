package audit

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// call is what a call without a refusal leaves: its grant with the layers of its box, and its end.
func call(id string) (grant, end []Event) {
	all := run(id)
	grant, end = []Event{all[0]}, []Event{all[1], all[3]}
	for _, layer := range []string{"capabilities", "cgroup", "devices", "filesystem", "ids", "limits", "namespaces", "network", "no_new_privs", "seccomp", "session"} {
		e := all[0]
		e.Detail = Layer{Layer: layer, State: "in force: what was seen of it from inside the box"}
		grant = append(grant, e)
	}
	return grant, end
}

// What the log costs a call: two appends.
func BenchmarkCall(b *testing.B) {
	l, err := Open(filepath.Join(b.TempDir(), "audit"), Options{Interval: time.Hour, Host: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	for i := range b.N {
		grant, end := call(fmt.Sprintf("run-%d", i))
		if err := l.Append(grant...); err != nil {
			b.Fatal(err)
		}
		if err := l.Append(end...); err != nil {
			b.Fatal(err)
		}
	}
}
