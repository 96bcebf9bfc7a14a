package main

import (
	"fmt"
	"slices"
	"strings"
)

// command is what `--help` of one command says.
type command struct {
	words    []string // below skillbox
	about    []string // paragraphs
	usage    []string
	examples []string
	flags    []option
	below    []*command
}

type option struct{ flags, about string }

// readCommands reads the help of a command and of all below it.
func readCommands(help func(args ...string) (string, error), words ...string) (*command, error) {
	text, err := help(words...)
	if err != nil {
		return nil, fmt.Errorf("skillbox %s --help: %w", strings.Join(words, " "), err)
	}
	c := &command{words: words}
	about, sections := splitHelp(text)
	c.about = strings.Split(strings.TrimSpace(about), "\n\n")
	for name, lines := range sections {
		switch name {
		case "Usage":
			c.usage = trimmed(lines)
		case "Examples":
			c.examples = trimmed(lines)
		case "Flags":
			if c.flags, err = readFlags(lines); err != nil {
				return nil, err
			}
		case "Available Commands":
			for _, line := range lines {
				name := strings.Fields(line)[0]
				if name == "help" { // cobra's own, which every --help stands for
					continue
				}
				sub, err := readCommands(help, append(slices.Clone(words), name)...)
				if err != nil {
					return nil, err
				}
				c.below = append(c.below, sub)
			}
		default:
			return nil, fmt.Errorf("skillbox %s --help has a section %q, which this program does not know", strings.Join(words, " "), name)
		}
	}
	return c, nil
}

// splitHelp splits cobra's layout: prose, then sections, each a name with a colon and indented lines.
func splitHelp(text string) (about string, sections map[string][]string) {
	sections = map[string][]string{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, ":") && isSection(strings.TrimSuffix(line, ":")):
			name = strings.TrimSuffix(line, ":")
		case strings.HasPrefix(line, `Use "skillbox`): // "for more information"
			return about, sections
		case name == "":
			about += line + "\n"
		case strings.TrimSpace(line) != "":
			sections[name] = append(sections[name], line)
		}
	}
	return about, sections
}

// isSection tells a section's name from prose that ends in a colon. Global flags would be one of a kind that skillbox has none of.
func isSection(name string) bool {
	return name == "Usage" || name == "Examples" || strings.HasSuffix(name, "Flags") || strings.HasSuffix(name, "Commands")
}

// trimmed takes away the two columns that help indents by.
func trimmed(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return lines
}

func readFlags(lines []string) ([]option, error) {
	var all []option
	for _, line := range lines {
		flags, about, ok := strings.Cut(strings.TrimSpace(line), "   ")
		if !ok || !strings.HasPrefix(flags, "-") {
			return nil, fmt.Errorf("no line of a flag: %q", line)
		}
		all = append(all, option{flags, strings.TrimSpace(about)})
	}
	return all, nil
}

func commandPage(c *command, f footer) string {
	r := newPage("skillbox", "1", "run an untrusted agent skill in a sandbox", f)
	r.macro("SH", "SYNOPSIS")
	for i, sub := range c.leaves() {
		if i > 0 {
			r.macro("br", "")
		}
		r.text(`\fB` + literal(strings.Join(sub.usage, " ")) + `\fP`)
	}
	r.macro("SH", "DESCRIPTION")
	r.paragraphs(c.about)
	r.example(c.examples)
	r.macro("SH", "COMMANDS")
	for _, sub := range c.leaves() {
		r.command(sub)
	}
	r.macro("SH", "FILES")
	for _, file := range [][2]string{
		{"/etc/skillbox/host.yaml", "The administrator's ceiling for every skill, in the format of skillbox-policy(5)."},
		{"/etc/skillbox/service.yaml, /etc/skillbox/audit.yaml, ~/.config/skillbox/audit.yaml", "How audit logs are kept, and where their records go besides: skillbox-audit(5)."},
		{"~/.cache/skillbox, /var/cache/skillbox", "Digests of bundles, so that an unchanged one is not read again."},
	} {
		r.macro("TP", "")
		r.text(`\fI` + literal(file[0]) + `\fP`)
		r.text(escape(file[1]))
	}
	r.macro("SH", "SEE ALSO")
	r.text(`\fBskillbox\-policy\fP(5), \fBskillbox\-audit\fP(5), \fBskillboxd\fP(8)`)
	return r.String()
}

// leaves are the commands that do something; a command with others below it only lists them.
func (c *command) leaves() []*command {
	if len(c.below) == 0 {
		return []*command{c}
	}
	var all []*command
	for _, sub := range c.below {
		all = append(all, sub.leaves()...)
	}
	return all
}

func (r *roff) command(c *command) {
	r.macro("SS", literal("skillbox "+strings.Join(c.words, " ")))
	r.paragraphs(c.about)
	for _, o := range c.flags {
		if strings.HasPrefix(o.about, "help for ") {
			continue
		}
		r.macro("TP", "")
		r.text(`\fB` + literal(o.flags) + `\fP`)
		r.text(escape(o.about))
	}
	if len(c.examples) > 0 {
		r.example(c.examples)
	}
}

func (r *roff) paragraphs(all []string) {
	for _, p := range all {
		r.macro("PP", "")
		r.text(escape(p))
	}
}
