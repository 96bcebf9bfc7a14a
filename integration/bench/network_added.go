package main

import "fmt"

// added measures what rules for the network add to a run of true: the same box with none, in turns.
func (b *networkBench) added() error {
	type variant struct {
		of        way
		name      string
		rules     []string
		prep, run []float64
	}
	var all []*variant
	for _, w := range b.ways {
		all = append(all, &variant{of: w, name: "no rule"}, &variant{of: w, name: "a domain rule", rules: domainRules(1)}, &variant{of: w, name: "a cidr rule", rules: cidrRules(1)})
	}
	times := max(*runs, 2)
	for round := range times {
		err := rotated(round, len(all), func(i int) error {
			v := all[i]
			r, err := b.run(v.of, b.policy(v.of, v.rules...), "true")
			if err == nil && round > 0 { // the first finds nothing in the page cache
				v.prep, v.run = append(v.prep, r.Phases["prepare_ms"]), append(v.run, r.Phases["run_ms"])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	b.title("skillbox exec of true with rules for the network, medians of %d runs each, in turns", times-1)
	var none *variant
	for _, v := range all {
		if v.rules == nil {
			none = v
		}
		for _, phase := range []struct {
			name       string
			with, base []float64
			most       float64
		}{{"Prepare", v.prep, none.prep, 8}, {"Run", v.run, none.run, 0.5}} {
			b.line(median(phase.with), "ms", "%s, %s, %s", phase.name, v.of.name, v.name)
			if v != none {
				adds := median(phase.with) - median(phase.base)
				b.bar(fmt.Sprintf("%+.2f ms", adds), fmt.Sprintf("at most +%g ms", phase.most), adds <= phase.most)
			}
		}
	}
	return nil
}
