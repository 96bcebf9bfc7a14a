package server

import (
	"testing"
	"time"

	"skillbox/bundle"
)

func TestADecisionHoldsForABundleThatNobodyTouchedSince(t *testing.T) {
	since := time.Now()
	k := &kept{digest: "sha256:a", since: since}
	for name, c := range map[string]struct {
		tree bundle.Tree
		want bool
	}{
		"as it was":                   {bundle.Tree{Digest: "sha256:a", Changed: since.Add(-time.Second)}, true},
		"another":                     {bundle.Tree{Digest: "sha256:b", Changed: since.Add(-time.Second)}, false},
		"changed while it was read":   {bundle.Tree{Digest: "sha256:a", Changed: since.Add(time.Millisecond)}, false},
		"by a clock that is not ours": {bundle.Tree{Digest: "sha256:a"}, false},
		"changed at that very moment": {bundle.Tree{Digest: "sha256:a", Changed: since}, false},
	} {
		if got := k.about(&c.tree); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestADecisionIsNotBelievedForEver(t *testing.T) {
	var all decisions
	all.keep([32]byte{1}, &decision{}, "sha256:a", time.Now())
	all.keep([32]byte{2}, &decision{}, "sha256:a", time.Now().Add(-fresh-time.Second))
	if all.find([32]byte{1}) == nil || all.find([32]byte{2}) != nil || all.find([32]byte{3}) != nil {
		t.Error("found what is too old, or not what is new")
	}
	old := &decision{}
	all.keep([32]byte{4}, old, "sha256:a", time.Now().Add(-fresh-time.Second))
	all.keep([32]byte{4}, old, "sha256:a", time.Now())
	if all.find([32]byte{4}) != nil {
		t.Error("a decision that is used stays for ever")
	}
	for i := range 2 * maxDecisions {
		all.keep([32]byte{3, byte(i)}, &decision{}, "", time.Now())
	}
	if len(all.kept) > maxDecisions {
		t.Errorf("%d are kept", len(all.kept))
	}
}
