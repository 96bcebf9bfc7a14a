package main

import (
	"fmt"
	"strings"
)

// footer is what a page's last line says.
type footer struct{ version, date string }

// roff is a manual page in the making, in the macros of man(7).
type roff struct {
	strings.Builder
	heading bool // nothing follows it yet: a paragraph begins anyway
}

func newPage(name, section, about string, f footer) *roff {
	r := &roff{}
	fmt.Fprintf(r, ".TH %q %s %q %q\n", strings.ToUpper(name), section, f.date, "skillbox "+f.version)
	r.macro("SH", "NAME")
	r.text(escape(name) + ` \- ` + escape(about))
	return r
}

// macro writes a macro with one argument, or with none if that is "".
func (r *roff) macro(name, argument string) {
	if r.heading && name == "PP" {
		return
	}
	r.heading = name == "SH" || name == "SS"
	if argument == "" {
		fmt.Fprintf(r, ".%s\n", name)
		return
	}
	fmt.Fprintf(r, ".%s \"%s\"\n", name, strings.ReplaceAll(argument, `"`, `\(dq`))
}

// text writes escaped text. What begins with a dot or an apostrophe would be a macro.
func (r *roff) text(escaped string) {
	r.heading = false
	for line := range strings.SplitSeq(strings.TrimSpace(escaped), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		r.WriteString(line + "\n")
	}
}

// example writes lines as they are.
func (r *roff) example(lines []string) {
	r.macro("PP", "")
	r.macro("RS", "")
	r.macro("EX", "")
	for _, line := range lines {
		if line = literal(line); strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		r.WriteString(line + "\n")
	}
	r.macro("EE", "")
	r.macro("RE", "")
}

// escape is for prose: what roff would obey or draw otherwise.
var escape = strings.NewReplacer(`\`, `\(rs`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, " --", ` \-\-`).Replace

// literal is for what a reader may copy: its hyphens and apostrophes are those of the keyboard.
var literal = strings.NewReplacer(`\`, `\(rs`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, "-", `\-`, "'", `\(aq`).Replace
