package main

import (
	"errors"
	"fmt"
	"net/netip"
)

// rounds and perRound are how often each box is asked for each thing, and how often it then does it in a row. A box's own DNS answers
// 1,000 queries in a second, and 50 of them that it has to pass on.
const rounds, perRound, firstLookups = 24, 50, 8

// connections measures connections and lookups, inside of boxes with few and with many rules and beside them, in turns.
func (b *networkBench) connections() (err error) {
	type room struct {
		*probe
		entries int
		took    map[string][]float64
		rounds  map[string][]float64 // medians
	}
	var rooms []*room
	defer func() {
		for _, r := range rooms {
			err = errors.Join(err, r.close())
		}
	}()
	enter := func(name string, w *way, entries int, policy string) error {
		s, err := b.begin(name, w, policy)
		if err == nil {
			rooms = append(rooms, &room{s, entries, map[string][]float64{}, map[string][]float64{}})
		}
		return err
	}
	if err := enter("no box", nil, 0, ""); err != nil {
		return err
	}
	for _, w := range b.ways {
		for _, entries := range []int{10, manyEntries} {
			if err := enter(w.name, &w, entries, b.policy(w, fewRules(entries)...)); err != nil {
				return err
			}
		}
	}
	for round := range rounds + 1 {
		err := rotated(round, len(rooms), func(i int) error {
			r := rooms[i]
			for what, t := range tasks(r.entries, round) {
				times, err := r.ask(t)
				if err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				if round > 0 { // the first looks up what the others connect to
					r.took[what] = append(r.took[what], times...)
					r.rounds[what] = append(r.rounds[what], median(times))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.title("connections and lookups, medians of %d, in turns; ratios are medians of the %d turns'", rounds*perRound, rounds)
	beside := rooms[0].took
	for _, what := range []string{connectRange, answerRange} {
		b.line(median(beside[what])/1000, "ms", "no box: %s", what)
	}
	for i := 1; i < len(rooms); i += 2 {
		few, many := rooms[i], rooms[i+1]
		for _, what := range []string{connectRange, answerRange, connectName, answerName, refusedRange} {
			b.line(median(few.took[what])/1000, "ms", "%s, 10 ranges and names: %s", few.name, what)
			b.line(median(many.took[what])/1000, "ms", "%s, 10,000 ranges and names: %s", many.name, what)
			more := (medianRatio(many.rounds[what], few.rounds[what]) - 1) * 100
			b.bar(fmt.Sprintf("%+.1f %%", more), "at most +10 %", more <= 10)
		}
	}
	b.line(median(beside[lookup])/1000, "ms", "no box: the same server asked directly (median of %d)", len(beside[lookup]))
	for i := 1; i < len(rooms); i += 2 {
		few, many := rooms[i], rooms[i+1]
		b.limit(median(few.took[known])/1000, "ms", 0.3, "%s, 10 ranges and names: %s", few.name, known)
		b.limit(median(many.took[known])/1000, "ms", 0.3, "%s, 10,000 ranges and names: %s", many.name, known)
		b.line(median(many.took[lookup])/1000, "ms", "%s, 10,000 ranges and names: %s (of %d)", many.name, lookup, len(many.took[lookup]))
		b.lines[len(b.lines)-1].Ratio = fmt.Sprintf("%.1f times a direct query", median(many.took[lookup])/median(beside[lookup]))
	}
	return nil
}

// medianRatio compares what was measured one right after the other: what else the machine does then hits both.
func medianRatio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}

// What is done in a box.
const (
	connectRange = "connect and close, by cidr"
	answerRange  = "connect, get a byte, close, by cidr"
	connectName  = "connect and close, by name"
	answerName   = "connect, get a byte, close, by name"
	refusedRange = "connect that no rule allows"
	known        = "a name that was looked up before"
	lookup       = "a name for the first time"
)

// tasks are those of a round. The last rule of each kind is used, for a list that is searched would be searched to its end.
func tasks(entries, round int) map[string]task {
	inRange := netip.AddrPortFrom(rangeOf(max(entries, 1)-1).Addr().Next(), greetPort)
	named := netip.AddrPortFrom(nameAddr(entries-1), greetPort)
	outside := netip.MustParseAddrPort("22.1.1.1:7000")
	dns := netip.MustParseAddrPort("127.0.0.1:53")
	var fresh []string
	for i := range firstLookups {
		fresh = append(fresh, nameOf(1000+firstLookups*round+i))
	}
	all := map[string]task{
		connectRange: {Do: "connect", To: inRange, Times: perRound},
		answerRange:  {Do: "answer", To: inRange, Times: perRound},
	}
	switch entries {
	case 0:
		all[lookup] = task{Do: "resolve", To: netip.AddrPortFrom(netip.MustParseAddr(serversAddr), 53), Names: fresh, Times: 1}
		return all
	case manyEntries:
		all[lookup] = task{Do: "resolve", To: dns, Names: fresh, Times: 1}
	}
	all[known] = task{Do: "resolve", To: dns, Names: []string{nameOf(entries - 1)}, Times: perRound}
	if round > 0 {
		all[connectName] = task{Do: "connect", To: named, Times: perRound}
		all[answerName] = task{Do: "answer", To: named, Times: perRound}
	}
	all[refusedRange] = task{Do: "refused", To: outside, Times: perRound}
	return all
}
