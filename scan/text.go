package scan

import (
	"fmt"
	"strings"
	"time"
)

// Text is a report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in %s\n", name(r), r.verdict(), counted(len(r.Runs), "run"))
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "\n%d. %s  %s  %s\n   %s\n", i+1, f.Severity, f.Rule, f.Title, f.Description)
		if f.File != "" {
			fmt.Fprintf(&b, "   at      %s:%d: %s\n", f.File, f.Line, f.Snippet)
		}
		if f.Count > 1 {
			fmt.Fprintf(&b, "   seen    %d times\n", f.Count)
		}
		for j := range min(len(f.Evidence), 3) {
			e := &f.Evidence[j]
			fmt.Fprintf(&b, "   record  %s %s: %s\n", e.Run, e.Kind, cut(e.Summary(), 160))
		}
		fmt.Fprintf(&b, "   remedy  %s\n", f.Remediation)
	}
	if len(r.Incomplete) > 0 {
		b.WriteString("\nincomplete:\n")
		for _, i := range r.Incomplete {
			fmt.Fprintf(&b, "  %s\n", i)
		}
	}
	if len(r.Compared) > 0 {
		b.WriteString("\ndeclared and seen:\n")
		for _, d := range r.Compared {
			fmt.Fprintf(&b, "  %s\n", d)
		}
	}
	b.WriteString("\nruns:\n")
	for _, run := range r.Runs {
		fmt.Fprintf(&b, "  %s\n", run.line())
	}
	b.WriteString("\nnot seen:\n")
	for _, u := range r.Unobserved {
		fmt.Fprintf(&b, "  %s\n", u)
	}
	return b.String()
}

// Markdown is a report for a review.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Scan of %s\n\n%s in %s, %s.\n", marked(name(r)), r.verdict(), counted(len(r.Runs), "run"), r.Time.UTC().Format(time.RFC3339))
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "\n## %s: %s\n\n`%s` (%s), seen %s.\n\n%s\n", f.Severity, f.Title, f.Rule, f.Category, counted(f.Count, "time"), marked(f.Description))
		if f.File != "" {
			fmt.Fprintf(&b, "\n%s:%d:\n\n%s\n", marked(f.File), f.Line, fenced(f.Snippet))
		}
		var records []string
		for j := range f.Evidence {
			records = append(records, string(f.Evidence[j].Line))
		}
		if len(records) > 0 {
			fmt.Fprintf(&b, "\n<details><summary>Records</summary>\n\n%s\n\n</details>\n", fenced(strings.Join(records, "\n")))
		}
		fmt.Fprintf(&b, "\n**Remedy:** %s\n", f.Remediation)
	}
	if len(r.Incomplete) > 0 {
		b.WriteString("\n## Incomplete\n\n")
		for _, i := range r.Incomplete {
			fmt.Fprintf(&b, "- %s\n", marked(i))
		}
	}
	if len(r.Compared) > 0 {
		b.WriteString("\n## Declared and seen\n\n")
		for _, d := range r.Compared {
			fmt.Fprintf(&b, "- %s\n", marked(d.String()))
		}
	}
	b.WriteString("\n## Runs\n\n")
	for _, run := range r.Runs {
		fmt.Fprintf(&b, "- %s\n", marked(run.line()))
	}
	b.WriteString("\n## Not seen\n\n")
	for _, u := range r.Unobserved {
		fmt.Fprintf(&b, "- %s\n", u)
	}
	return b.String()
}

func name(r *Report) string {
	if r.Skill.Name != "" {
		return r.Skill.Name
	}
	return "the skill"
}

// verdict never says that a skill is safe.
func (r *Report) verdict() string {
	if len(r.Findings) == 0 {
		return "nothing was found"
	}
	return fmt.Sprintf("%s, the worst %s,", counted(len(r.Findings), "finding"), r.Worst())
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// String is a difference in a sentence.
func (d Difference) String() string {
	if d.Declared {
		return d.Key + ": " + d.Value + " is declared, and no run used it"
	}
	return d.Key + ": " + d.Value + " was tried, and is not declared"
}

func (r *Run) line() string {
	text := fmt.Sprintf("%s  %s, exit code %d, %.1f s  %s", r.ID, r.Verdict, r.ExitCode, r.Duration.Seconds(), strings.Join(r.Command, " "))
	if r.Params != "" {
		text += "  with " + clean(r.Params)
	}
	if r.Clock > 0 {
		text += "  " + days(r.Clock) + " ahead"
	}
	return text
}

// marked writes text so that Markdown, and the HTML within it, shows it as it is.
func marked(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case '<':
			b.WriteString("&lt;")
			continue
		case '>':
			b.WriteString("&gt;")
			continue
		case '&':
			b.WriteString("&amp;")
			continue
		}
		if strings.ContainsRune("\\`*_{}[]()#+-.!|~:@", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// fenced is a block that no text in it can end.
func fenced(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence
}
