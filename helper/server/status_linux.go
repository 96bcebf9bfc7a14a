package server

import (
	"cmp"
	"encoding/json"
	"slices"

	"skillbox/helper"
	"skillbox/sandbox"
)

// status answers OpStatus.
func (s *Service) status(words []string) (json.RawMessage, error) {
	is := helper.Status{
		Since: s.since.UTC(), Running: s.calls.status(), Sessions: s.held.status(), Ready: s.pool.status(), Verdicts: s.record.Verdicts(), FoundReady: s.record.Found(),
	}
	if slices.Contains(words, helper.AllBoxes) {
		is.Boxes = s.eachBox()
	}
	return json.Marshal(is)
}

// seen is a box, and what is known of it beforehand.
type seen struct {
	helper.BoxStatus
	box *sandbox.Box
}

// eachBox lists all boxes: calls, sessions and those that are ready, of each the oldest first. Their memory is looked at when no lock is
// held: one may have ended, or serve a call, by then.
func (s *Service) eachBox() []helper.BoxStatus {
	boxes := slices.Concat(s.calls.boxes(), s.held.boxes(), s.pool.ready())
	all := []helper.BoxStatus{}
	for _, one := range boxes {
		if n, ok := one.box.Memory(); ok {
			one.MemoryBytes = &n
		}
		all = append(all, one.BoxStatus)
	}
	return all
}

// eldest sorts by age.
func eldest(boxes []seen) []seen {
	slices.SortFunc(boxes, func(a, b seen) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return boxes
}

// boxes are those of calls but for sessions'.
func (c *calls) boxes() (all []seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.running {
		if r.box != nil {
			all = append(all, seen{helper.BoxStatus{
				ID: id, Kind: helper.CallBox, Skill: r.Skill, Policy: r.Policy, Bundle: r.d.from(), Command: r.Command, Since: r.Since,
			}, r.box})
		}
	}
	return eldest(all)
}

func (s *sessions) boxes() (all []seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.live {
		all = append(all, seen{helper.BoxStatus{
			ID: id, Kind: helper.SessionBox, Skill: one.d.bundle.Name, Policy: one.d.policy.Name, Bundle: one.d.from(), State: one.state(), Since: one.since.UTC(),
		}, one.box})
	}
	return eldest(all)
}

func (p *pool) ready() (all []seen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		for _, r := range s.ready {
			all = append(all, seen{helper.BoxStatus{ID: r.box.ID, Kind: r.start(), Skill: s.skill, Policy: s.policy, Bundle: s.from, Since: r.since.UTC()}, r.box})
		}
	}
	return eldest(all)
}

// from is the directory that the caller named.
func (d *decision) from() string { return cmp.Or(d.original, bundleOf(d.plan)) }

// bundleOf is the directory of a plan's bundle.
func bundleOf(p *sandbox.Plan) string { return p.Tree.Bundle.Source.Path }
