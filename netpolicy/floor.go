package netpolicy

import (
	"net/netip"

	"skillbox/netpolicy/floor"
)

// opened are the ranges by which rules open some of the floor.
func (s *Ruleset) opened() (all []netip.Prefix) {
	for _, r := range s.egress.rules {
		for _, p := range r.CIDRs {
			if floor.Opens(p) != "" {
				all = append(all, p)
			}
		}
	}
	return all
}
