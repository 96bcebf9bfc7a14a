package server

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
)

// decisions are what a service decided before: to parse, grant and compile takes longer than to find that all is still as it was. What
// was refused is decided anew.
type decisions struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*kept
}

// kept is a decision about a bundle with this digest, which covers everything that was read of it. Nothing of it was read before since.
type kept struct {
	*decision
	digest string
	since  time.Time
}

// maxDecisions are kept; a decision is not believed for longer than a box, for the same reason.
const maxDecisions = 64

// spoken names everything that a decision depends on beside bundle and machine: what operator and administrator say, by files and flags.
func spoken(r *helper.Request, s *said) (sum [sha256.Size]byte, err error) {
	flags := *r
	flags.Files, flags.Inputs, flags.Rows, flags.Cols, flags.Asker = nil, nil, 0, 0, helper.Asker{}
	text, err := json.Marshal([]any{&flags, s.operator, s.ceilings, s.signature})
	return sha256.Sum256(text), err
}

func (k *decisions) find(key [sha256.Size]byte) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.kept[key]
	if found == nil || time.Since(found.since) > fresh {
		return nil
	}
	return found
}

func (k *decisions) keep(key [sha256.Size]byte, d *decision, digest string, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.kept[key]; old != nil && old.decision == d {
		return // to find it again makes it no younger
	}
	if k.kept == nil || len(k.kept) >= maxDecisions {
		k.kept = map[[sha256.Size]byte]*kept{}
	}
	k.kept[key] = &kept{d, digest, since}
}

// holds says whether a decision is what decide would come to now.
func (k *kept) holds(r *helper.Request, f *files, tree *bundle.Tree) bool {
	if !k.about(tree) {
		return false
	}
	now, err := identify(f.bundle, k.granted.Policy, placeOf(r), r.Ways, r.ImageDir)
	now.BundleAt = k.sources.BundleAt // of the request, which is the same
	return err == nil && reflect.DeepEqual(now, k.sources)
}

// about says whether a bundle is what was decided on. The manifest and the digest are read beside one another: should the bundle have been
// changed in between, the one would stand for the other's from then on. Its ctimes tell, and where they are another machine's nothing is kept.
func (k *kept) about(tree *bundle.Tree) bool {
	return tree.Digest == k.digest && !tree.Changed.IsZero() && tree.Changed.Before(k.since)
}
