package main

import "fmt"

// line is one figure, how it stands to another, and what that should be.
type line struct {
	Title string  `json:"title,omitempty"` // a heading instead of a figure
	What  string  `json:"what,omitempty"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Ratio string  `json:"ratio,omitempty"` // "+0.12 ms", "61.3 % of it"
	Bar   string  `json:"bar,omitempty"`   // "at most +0.5 ms"
	Met   bool    `json:"met,omitempty"`
}

// report gathers lines.
type report struct{ lines []line }

func (r *report) title(format string, a ...any) {
	r.lines = append(r.lines, line{Title: fmt.Sprintf(format, a...)})
}

func (r *report) line(value float64, unit, format string, a ...any) {
	r.lines = append(r.lines, line{What: fmt.Sprintf(format, a...), Value: value, Unit: unit})
}

// limit is for a line whose figure must not be higher.
func (r *report) limit(value float64, unit string, most float64, format string, a ...any) {
	r.line(value, unit, format, a...)
	r.bar("", fmt.Sprintf("at most %g %s", most, unit), value <= most)
}

// bar says how the last line's figure stands to another, what it should be, and whether it is.
func (r *report) bar(ratio, bar string, met bool) {
	l := &r.lines[len(r.lines)-1]
	l.Ratio, l.Bar, l.Met = ratio, bar, met
}

func printLines(lines []line) {
	for _, l := range lines {
		if l.Title != "" {
			fmt.Printf("\n%s\n", l.Title)
			continue
		}
		digits := 2
		if l.Unit == "ms" {
			digits = 3
		}
		fmt.Printf("%-76s %8.*f %s", l.What, digits, l.Value, l.Unit)
		if l.Ratio != "" {
			fmt.Printf("   %s", l.Ratio)
		}
		if l.Bar != "" {
			fmt.Printf("   (%s: %s)", l.Bar, map[bool]string{true: "kept", false: "MISSED"}[l.Met])
		}
		fmt.Println()
	}
}
