package suite

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// Text is a table with a line for each skill, what was not as expected, and the sum.
func (r *Report) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "SKILL\tLAYOUT\tPASSED\tFAILED\tSKIPPED\tMS\n")
	for _, group := range r.bySkill() {
		var sum Report
		var took float64
		sum.Outcomes = group
		sum.count()
		for _, o := range group {
			took += o.DurationMS
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.0f\n", visible(group[0].Skill), group[0].Layout, sum.Passed, sum.Failed+sum.Errors, sum.Skipped, took)
	}
	w.Flush()
	for _, o := range r.Outcomes {
		if o.Status == Passed {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s, %s\n", o.Status, visible(o.Skill), visible(o.Case))
		for _, why := range o.Why {
			fmt.Fprintf(&b, "  %s\n", visible(why))
		}
		for _, warning := range o.Warnings {
			fmt.Fprintf(&b, "  warning: %s\n", visible(warning))
		}
		if text := strings.TrimSpace(o.Stderr); text != "" {
			fmt.Fprintf(&b, "  stderr: %s\n", visible(last(text)))
		}
	}
	fmt.Fprintf(&b, "\n%d skills, %d cases: %d passed, %d failed, %d errors, %d skipped in %.1f s\n",
		r.Skills, len(r.Outcomes), r.Passed, r.Failed, r.Errors, r.Skipped, r.DurationMS/1000)
	return b.String()
}

// last is the last line of a text, where programs say why they failed.
func last(text string) string {
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// bySkill are the outcomes of each skill, which lie side by side.
func (r *Report) bySkill() (groups [][]*Outcome) {
	for _, o := range r.Outcomes {
		if n := len(groups); n > 0 && groups[n-1][0].Skill == o.Skill {
			groups[n-1] = append(groups[n-1], o)
		} else {
			groups = append(groups, []*Outcome{o})
		}
	}
	return groups
}

// JSON writes the report as one object.
func (r *Report) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// The elements of JUnit's format that its readers agree upon.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Error   *junitMessage `xml:"error"`
	Skipped *junitMessage `xml:"skipped"`
	Stdout  string        `xml:"system-out,omitempty"`
	Stderr  string        `xml:"system-err,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the report as XML for the viewers of CI systems.
func (r *Report) JUnit(w io.Writer) error {
	seconds := func(ms float64) string { return strconv.FormatFloat(ms/1000, 'f', 3, 64) }
	all := junitSuites{Tests: len(r.Outcomes), Failures: r.Failed, Errors: r.Errors, Skipped: r.Skipped, Time: seconds(r.DurationMS)}
	for _, group := range r.bySkill() {
		sum, took := Report{Outcomes: group}, 0.0
		sum.count()
		s := junitSuite{Name: visible(group[0].Skill), Tests: len(group), Failures: sum.Failed, Errors: sum.Errors, Skipped: sum.Skipped, Timestamp: r.Began.Format("2006-01-02T15:04:05")}
		for _, o := range group {
			took += o.DurationMS
			c := junitCase{Name: visible(o.Case), Class: visible(string(o.Layout) + "." + o.Skill), Time: seconds(o.DurationMS), Stdout: visibleLines(o.Stdout), Stderr: visibleLines(o.Stderr)}
			if len(o.Why) > 0 {
				m := &junitMessage{Message: visible(o.Why[0]), Text: visibleLines(strings.Join(o.Why, "\n"))}
				switch o.Status {
				case Failed:
					c.Failure = m
				case Errored:
					c.Error = m
				case Skipped:
					c.Skipped = m
				}
			}
			s.Cases = append(s.Cases, c)
		}
		s.Time = seconds(took)
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// visible writes out what a terminal would obey, XML does not know, or is no UTF-8.
func visible(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && s[i] != 0xef:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unicode.IsPrint(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}
