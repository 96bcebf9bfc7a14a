package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSummaryOfACSV(t *testing.T) {
	tests := []struct{ name, csv, want string }{
		{"numbers", "city,km\nOslo,2\nBergen,4\n", `{"rows":2,"columns":[{"name":"km","count":2,"min":2,"max":4,"mean":3}],"skipped":0}`},
		{"no numbers", "city\nOslo\n", `{"rows":1,"columns":[],"skipped":0}`},
		{"a header alone", "a,b\n", `{"rows":0,"columns":[],"skipped":0}`},
		{"empty and odd cells", "n\n-1\n\"\"\nNaN\nx\n", `{"rows":4,"columns":[{"name":"n","count":1,"min":-1,"max":-1,"mean":-1}],"skipped":2}`},
		{"a mean without overflow", "n\n1e308\n1e308\n-1e308\n-1e308\n", `{"rows":4,"columns":[{"name":"n","count":4,"min":-1e+308,"max":1e+308,"mean":0}],"skipped":0}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result, err := summarise(strings.NewReader(test.csv))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := json.Marshal(result); string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestARaggedOrEmptyCSVIsAnError(t *testing.T) {
	for _, text := range []string{"", "a,b\n1\n", "a\n\"open\n"} {
		if result, err := summarise(strings.NewReader(text)); err == nil {
			t.Errorf("summarise(%q) = %v, want an error", text, result)
		}
	}
}
