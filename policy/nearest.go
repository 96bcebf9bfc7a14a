package policy

import "strings"

// nearest is the hint for a key that is not in table: the key probably meant
// here, else the same word elsewhere, else all that are valid here.
func nearest(name, at string, table, root []key) string {
	here := make([]string, len(table))
	for i, k := range table {
		here[i] = k.name
	}
	if near := closest(name, here); near != "" {
		return "did you mean " + near + "?"
	}
	for _, known := range here {
		if len(known) > 3 && strings.Contains(name, known) {
			return "did you mean " + known + "?"
		}
	}
	elsewhere := ""
	walk("", root, func(path string, k key) {
		if k.name == name && elsewhere == "" {
			elsewhere = path
		}
	})
	if elsewhere != "" {
		return "did you mean " + elsewhere + "?"
	}
	if at == "" {
		return "valid here: " + strings.Join(here, ", ")
	}
	return "valid in " + at + ": " + strings.Join(here, ", ")
}

// closest is the one of known that name was probably meant to be, or "".
func closest(name string, known []string) string {
	best, least := "", min(1+len(name)/4, 3)
	if len(name) > 40 {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(name), k); d <= least && d < len(k) {
			if d < least || best == "" {
				best, least = k, d
			}
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with
// the neighbour to make a into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
