package page

import (
	"cmp"
	"slices"

	"skillbox/audit"
	"skillbox/scan"
)

// key names a record across the runs of a page: each run may have been recorded in a log of its own.
type key struct {
	run string
	seq uint64
}

func keyOf(r *audit.Record) key { return key{r.Run, r.Seq} }

// evidenceOf are the records that findings rest on.
func evidenceOf(findings []scan.Finding) map[key]bool {
	keys := map[key]bool{}
	for i := range findings[:min(len(findings), maxFindings)] {
		for j := range findings[i].Evidence {
			keys[keyOf(&findings[i].Evidence[j])] = true
		}
	}
	return keys
}

// Sorts of records, those first that a reader would miss most.
const (
	isEvidence = iota
	isVerdict
	isDenied
	isExec
	isNetwork
	isOther
	isFile
	sorts
)

func (b *builder) sortOf(r *audit.Record) int {
	o := r.Outcome()
	switch {
	case b.evidence[keyOf(r)]:
		return isEvidence
	case r.Kind == audit.RunGranted, r.Kind == audit.RunRefused, r.Kind == audit.RunStarted, r.Kind == audit.RunEnded:
		return isVerdict
	case o != nil && o.Verdict == audit.Denied:
		return isDenied
	case r.Kind == audit.ExecKind:
		return isExec
	case r.Kind == audit.DNSKind, r.Kind == audit.ConnKind:
		return isNetwork
	case r.Kind == audit.FileKind:
		return isFile
	}
	return isOther
}

// candidate is a record that may get a row, with its place among all.
type candidate struct {
	run    *runBuilder
	order  int64
	sort   int
	record audit.Record
}

// choice keeps, of each sort and run, as many of the first records as a page could show.
type choice struct {
	buckets [][]candidate
	kept    [sorts]map[*runBuilder]int // index into buckets
	left    map[string]int64           // what is not shown, by kind
}

func (c *choice) add(one candidate) {
	one.record.Line = nil
	if c.kept[one.sort] == nil {
		c.kept[one.sort] = map[*runBuilder]int{}
	}
	at, known := c.kept[one.sort][one.run]
	if !known {
		at = len(c.buckets)
		c.kept[one.sort][one.run] = at
		c.buckets = append(c.buckets, nil)
	}
	if len(c.buckets[at]) < maxEvents {
		c.buckets[at] = append(c.buckets[at], one)
		return
	}
	c.drop(&one)
}

func (c *choice) drop(one *candidate) {
	if c.left == nil {
		c.left = map[string]int64{}
	}
	c.left[leftName(&one.record)]++
}

// leftName says what was left out, such as "file, allowed".
func leftName(r *audit.Record) string {
	if v := r.Verdict(); v != "" {
		return string(r.Kind) + ", " + v
	}
	return string(r.Kind)
}

// rows makes the rows that the page has room for. Each sort of each run first gets its share, so that a flood of one does not hide
// another; what room is left goes by sort, and within one to the earliest.
func (c *choice) rows() (shown int) {
	slices.SortStableFunc(c.buckets, func(a, b []candidate) int { return cmp.Compare(a[0].sort, b[0].sort) })
	room := budget(eventBytes)
	share := maxEvents / max(len(c.buckets), 1)
	shareBytes := budget(eventBytes / max(len(c.buckets), 1))
	show := func(one *candidate, limit *budget) bool {
		r := one.run.rowOf(&one.record)
		r.order = one.order
		cost := r.cost()
		if shown >= maxEvents || cost > int(room) || !limit.take(cost) {
			return false
		}
		room -= budget(cost)
		one.run.rows = append(one.run.rows, r)
		shown++
		return true
	}
	rest := make([][]candidate, len(c.buckets))
	for i, bucket := range c.buckets {
		limit, n := shareBytes, 0
		for n < min(len(bucket), share) && show(&bucket[n], &limit) {
			n++
		}
		rest[i] = bucket[n:]
	}
	for _, bucket := range rest {
		limit, n := room, 0
		for n < len(bucket) && show(&bucket[n], &limit) {
			n++
		}
		for i := range bucket[n:] {
			c.drop(&bucket[n+i])
		}
	}
	return shown
}
