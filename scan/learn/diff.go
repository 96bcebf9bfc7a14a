package learn

import (
	"fmt"
	"slices"
	"strings"

	"skillbox/policy"
	"skillbox/scan"
)

// around is how many lines that are the same stand around a difference.
const around = 3

// edit is a line of a diff: ' ' is in both, '-' only in the first, '+' only in the second.
type edit struct {
	op   byte
	text string
}

// edits turn a into b, by their longest common subsequence. Policies are short.
func edits(a, b []string) (all []edit) {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			all = append(all, edit{'-', a[i]})
			i++
		default:
			all = append(all, edit{'+', b[j]})
			j++
		}
	}
	return all
}

// unified is a diff as patch(1) reads it; "" where both are the same.
func unified(a, b []string, nameA, nameB string) string {
	all := edits(a, b)
	var out strings.Builder
	for at := 0; at < len(all); {
		if all[at].op == ' ' {
			at++
			continue
		}
		from := max(at-around, 0)
		end, same := at, 0
		for end < len(all) && same <= 2*around {
			if same++; all[end].op != ' ' {
				same = 0
			}
			end++
		}
		end -= max(same-around, 0)
		if out.Len() == 0 {
			fmt.Fprintf(&out, "--- %s\n+++ %s\n", nameA, nameB)
		}
		hunk(&out, all, from, end)
		at = end
	}
	return out.String()
}

func hunk(out *strings.Builder, all []edit, from, end int) {
	count := func(part []edit, not byte) (n int) {
		for _, e := range part {
			if e.op != not {
				n++
			}
		}
		return n
	}
	lengthA, lengthB := count(all[from:end], '+'), count(all[from:end], '-')
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", count(all[:from], '+')+min(lengthA, 1), lengthA, count(all[:from], '-')+min(lengthB, 1), lengthB)
	for _, e := range all[from:end] {
		fmt.Fprintf(out, "%c%s\n", e.op, e.text)
	}
}

// compare lists what the current policy grants and the learned one does not, and the other way round. A wish is missing too.
func compare(current, learned *policy.Policy, wishes []Wish) []scan.Difference {
	all := []scan.Difference{}
	usual := policy.Default()
	for _, k := range keys {
		was, is := k.values(current), k.values(learned)
		switch {
		case k.list && k.key == "network.egress":
			all = append(all, compareEgress(current.Network.Egress, learned.Network.Egress)...)
		case k.list:
			all = append(all, only(k.key, was, is, true)...)
			all = append(all, only(k.key, is, was, false)...)
		case !slices.Equal(was, is) && (current.Named(k.key) || !slices.Equal(was, k.values(usual))) && k.key != "name":
			all = append(all, only(k.key, was, nil, true)...)
			all = append(all, only(k.key, is, nil, false)...)
		}
	}
	for _, w := range wishes {
		all = append(all, scan.Difference{Key: w.Key, Value: w.Value, Declared: false})
	}
	return all
}

func only(key string, these, those []string, declared bool) (all []scan.Difference) {
	for _, v := range these {
		if !slices.Contains(those, v) {
			all = append(all, scan.Difference{Key: key, Value: v, Declared: declared})
		}
	}
	return all
}

// compareEgress goes by what rules allow, name by name and range by range, and not by how they are written.
func compareEgress(current, learned []policy.Rule) (all []scan.Difference) {
	for _, r := range current {
		for _, one := range single(r) {
			if !slices.ContainsFunc(learned, func(n policy.Rule) bool {
				return slices.ContainsFunc(single(n), func(m policy.Rule) bool { return policy.Contains([]policy.Rule{one}, m) })
			}) {
				all = append(all, scan.Difference{Key: "network.egress", Value: one.String(), Declared: true})
			}
		}
	}
	for _, r := range learned {
		for _, one := range single(r) {
			if !policy.Contains(current, one) {
				all = append(all, scan.Difference{Key: "network.egress", Value: one.String(), Declared: false})
			}
		}
	}
	return all
}

// single are the rules of one name or range, and one range of ports each, that together are a rule.
func single(r policy.Rule) (all []policy.Rule) {
	for _, port := range r.Ports {
		for _, d := range r.Domains {
			all = append(all, policy.Rule{Domains: []string{d}, Ports: []policy.Port{port}, UnsafeWildcard: r.UnsafeWildcard})
		}
		for _, c := range r.CIDRs {
			one := r
			one.CIDRs, one.Ports, one.Except = r.CIDRs[:0:0], []policy.Port{port}, nil
			one.CIDRs = append(one.CIDRs, c)
			all = append(all, one)
		}
	}
	return all
}
