package main

import (
	"fmt"
	"runtime"
	"time"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// manyEntries is how many ranges, and how many names, a long policy has.
const manyEntries = 10_000

// rules measures what a long policy costs to read, to compile and to load, and to run with.
func (b *networkBench) rules() error {
	const times = 10
	few, many := fewRules(10), fewRules(manyEntries)
	var read, compile, load10, load []float64
	type runs struct {
		name       string
		rules      []string
		all, built []float64
	}
	ends := []*runs{{name: "10,000 of each", rules: many}, {name: "10 of each", rules: few}}
	for range times {
		egress, took, err := readRules(b.policy(b.ways[0], many...))
		if err != nil {
			return err
		}
		read = append(read, took)
		began := time.Now()
		rules := netpolicy.Compile(egress, nil)
		compile = append(compile, millis(began))
		took, err = loadRules(rules)
		if err != nil {
			return err
		}
		load = append(load, took)
		if egress, _, err = readRules(b.policy(b.ways[0], few...)); err != nil {
			return err
		}
		if took, err = loadRules(netpolicy.Compile(egress, nil)); err != nil {
			return err
		}
		load10 = append(load10, took)
		for _, e := range ends {
			began := time.Now()
			r, err := b.run(b.ways[0], b.policy(b.ways[0], e.rules...), "true")
			if err != nil {
				return err
			}
			e.all, e.built = append(e.all, millis(began)), append(e.built, r.Phases["prepare_ms"])
		}
	}
	b.title("a policy of 10,000 ranges and 10,000 names, medians of %d", times)
	b.line(float64(len(b.policy(b.ways[0], many...)))/1024, "KiB", "size of the file")
	b.line(median(read), "ms", "reading the file (YAML and checks)")
	b.limit(median(compile), "ms", 200, "compiling the rules")
	b.limit(median(read)+median(compile), "ms", 200, "both")
	b.limit(median(load), "ms", 300, "making a namespace with the rules in the kernel")
	b.line(median(load10), "ms", "the same with 10 ranges and 10 names")
	for _, e := range ends {
		b.line(median(e.all), "ms", "all of skillbox exec of true, %s, %s", b.ways[0].name, e.name)
		b.line(median(e.built), "ms", "of that, Prepare")
	}
	return nil
}

// readRules reads the egress rules of a policy as skillboxd does.
func readRules(text string) (egress []netpolicy.Rule, took float64, err error) {
	runtime.GC() // what was before is not this one's doing
	began := time.Now()
	p, err := policy.Parse("policy.yaml", []byte(text))
	took = millis(began)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range p.Network.Egress {
		rule := netpolicy.Rule{Domains: r.Domains, CIDRs: r.CIDRs, Except: r.Except, Line: fmt.Sprintf("%s:%d", r.At.File, r.At.Line)}
		for _, port := range r.Ports {
			rule.Ports = append(rule.Ports, netpolicy.Ports(port))
		}
		egress = append(egress, rule)
	}
	return egress, took, nil
}

// loadRules makes a network with rules, and removes it.
func loadRules(rules *netpolicy.Ruleset) (took float64, err error) {
	runtime.GC()
	began := time.Now()
	h, err := netpolicy.Create(netpolicy.Description{Rules: rules})
	if err != nil {
		return 0, err
	}
	return millis(began), h.Close()
}

func millis(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
