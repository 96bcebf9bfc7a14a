package policy

import (
	"maps"
	"slices"
)

// GrantAll is Grant below several ceilings, each of which must hold. With none
// nothing is restricted.
func GrantAll(ceilings []*Policy, operator, declared *Policy) (*Granted, error) {
	if len(ceilings) == 0 {
		return Grant(nil, operator, declared)
	}
	if operator == nil {
		operator = Default()
	}
	var clamped []Note
	below := operator
	for _, ceiling := range ceilings[:len(ceilings)-1] {
		g, err := Grant(ceiling, below, nil)
		if err != nil {
			return nil, err
		}
		clamped = append(clamped, g.Clamped...)
		below = g.Policy
		// A default that was lowered is still nobody's word: the next ceiling may lower it again.
		maps.DeleteFunc(below.positions, func(path string, _ Position) bool { return !operator.Named(path) })
	}
	g, err := Grant(ceilings[len(ceilings)-1], below, declared)
	if err != nil {
		return nil, err
	}
	g.Clamped = slices.Concat(clamped, g.Clamped)
	return g, nil
}
