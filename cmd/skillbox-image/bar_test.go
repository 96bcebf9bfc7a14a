package main

import "testing"

func TestTheBarIsOneLine(t *testing.T) {
	for _, c := range []struct {
		done, total, ready, layers int64
		want                       string
	}{
		{0, 0, 0, 0, "looking for the image"},
		{0, 1 << 20, 0, 3, "[..............................] 0.0 KiB of 1.0 MiB, 0 of 3 layers"},
		{5 << 29, 5 << 30, 1, 127, "[###############...............] 2.5 GiB of 5.0 GiB, 1 of 127 layers"},
		{11, 10, 2, 2, "[##############################] 0.0 KiB of 0.0 KiB, 2 of 2 layers"},
		{1, -1 << 62, 0, 2, "looking for the image"},
		{-1 << 20, 1, 0, 2, "[..............................] -1024.0 KiB of 0.0 KiB, 0 of 2 layers"},
	} {
		got := bar(c.done, c.total, c.ready, c.layers)
		if got != c.want || len(got) > 79 {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
