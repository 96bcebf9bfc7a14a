package seccomp

import (
	"slices"
)

// cube is a set of argument values given by fixed bits: half i of the arguments is in it when it equals value[i] under mask[i].
type cube struct {
	mask, value [halves]uint32
	row         Row
}

// cubes turns the ordered rows of one call, where the first match decides, into disjoint cubes that cover every argument
// value and carry one row each. libseccomp has no order of rules and cannot say "all values but these"; but the complement
// of a few 32-bit values is at most 32 cubes per value, one for each first bit that differs, and numbers that share
// their high bits, as ioctl requests and families do, share those cubes.
func cubes(rows []Row) []cube {
	return split(cube{}, 0, rows)
}

// split fixes one argument bit after the other until one row is left. at holds what is fixed so far; below argument first nothing
// remains to be asked.
func split(at cube, first uint8, rows []Row) []cube {
	rows = narrow(at, rows)
	if len(rows) == 0 {
		return nil // no row: the filter's default
	}
	if len(rows[0].When) == 0 {
		at.row = rows[0]
		return []cube{at}
	}
	for n := first; n < halves; n++ {
		open := openBits(n, rows) &^ at.mask[n]
		if open == 0 {
			continue
		}
		bit := choose(open, n, rows)
		zero, one := at, at
		zero.mask[n] |= bit
		one.mask[n] |= bit
		one.value[n] |= bit
		return merge(split(zero, n, rows), split(one, n, rows), n, bit)
	}
	return nil
}

// narrow drops the conditions that hold in the whole cube, the rows that cannot match in it, and the rows behind one that
// always does.
func narrow(at cube, rows []Row) []Row {
	var left []Row
	for _, r := range rows {
		var when []Cond
		possible := true
		for _, c := range r.When {
			fixed := at.mask[c.Arg] & c.Mask
			c.In = slices.DeleteFunc(slices.Clone(c.In), func(v uint32) bool { return v&fixed != at.value[c.Arg]&fixed })
			if len(c.In) == 0 {
				possible = false
				break
			}
			if fixed != c.Mask {
				when = append(when, c)
			}
		}
		if !possible {
			continue
		}
		r.When = when
		left = append(left, r)
		if len(when) == 0 {
			break
		}
	}
	return left
}

// choose picks the next bit to fix: first those that all values share, each of which cuts off half of what is left at the
// price of one cube; then from the bottom, where AF_INET and AF_INET6 part last and can be merged again.
func choose(open uint32, n uint8, rows []Row) uint32 {
	all, none := open, open // bits set in every value, and in no value
	for _, r := range rows {
		for _, c := range r.When {
			if c.Arg != n {
				continue
			}
			for _, v := range c.In {
				all &= v
				none &^= v
			}
		}
	}
	if shared := all | none; shared != 0 {
		open = shared
	}
	return open & -open
}

// merge joins two halves that differ in nothing but the bit which parted them.
func merge(zero, one []cube, n uint8, bit uint32) []cube {
	if len(zero) != len(one) {
		return append(zero, one...)
	}
	for i := range zero {
		flipped := one[i]
		flipped.value[n] &^= bit
		if zero[i].mask != flipped.mask || zero[i].value != flipped.value || !sameVerdict(zero[i].row, flipped.row) {
			return append(zero, one...)
		}
	}
	for i := range zero {
		zero[i].mask[n] &^= bit
	}
	return zero
}

func sameVerdict(a, b Row) bool {
	return a.Name == b.Name && a.Reason == b.Reason && a.Action == b.Action && a.Errno == b.Errno && a.Quiet == b.Quiet && a.Watch == b.Watch
}

// openBits is every bit of the argument that some row still asks about.
func openBits(n uint8, rows []Row) uint32 {
	var mask uint32
	for _, r := range rows {
		for _, c := range r.When {
			if c.Arg == n {
				mask |= c.Mask
			}
		}
	}
	return mask
}
