package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// documentPage turns a document into a manual page. It knows as much Markdown as the project's documents use: headings, paragraphs,
// lists, tables, fenced examples; code, bold and links in a line. What it does not know is an error.
func documentPage(name, section, about, text string, f footer) (string, error) {
	r := newPage(name, section, about, f)
	r.macro("SH", "DESCRIPTION")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if !strings.HasPrefix(lines[0], "# ") {
		return "", fmt.Errorf("line 1 is no title")
	}
	for at := 1; at < len(lines); {
		n, err := r.block(lines[at:])
		if err != nil {
			return "", fmt.Errorf("line %d: %w", at+1, err)
		}
		at += n
	}
	return r.String(), nil
}

var (
	bullet = regexp.MustCompile(`^- `)
	number = regexp.MustCompile(`^\d+\. `)
)

// block writes what begins with the first line, and returns how many lines that was.
func (r *roff) block(lines []string) (int, error) {
	first := lines[0]
	switch {
	case strings.TrimSpace(first) == "", strings.HasPrefix(first, "<!--") && strings.HasSuffix(first, "-->"):
		return 1, nil
	case strings.HasPrefix(first, "## "):
		r.macro("SH", escape(first[3:]))
		return 1, nil
	case strings.HasPrefix(first, "### "):
		r.macro("SS", escape(first[4:]))
		return 1, nil
	case strings.HasPrefix(first, "```"):
		end := until(lines[1:], func(line string) bool { return strings.HasPrefix(line, "```") })
		r.example(lines[1 : 1+end])
		return end + 2, nil
	case strings.HasPrefix(first, "    "):
		end := until(lines, func(line string) bool { return !strings.HasPrefix(line, "    ") })
		r.example(lines[:end])
		return end, nil
	case strings.HasPrefix(first, "|"):
		end := until(lines, func(line string) bool { return !strings.HasPrefix(line, "|") })
		return end, r.table(lines[:end])
	case strings.HasPrefix(first, "#"), strings.HasPrefix(first, ">"), strings.HasPrefix(first, "<"):
		return 0, fmt.Errorf("this program does not know %q", first)
	}
	for _, mark := range []*regexp.Regexp{bullet, number} {
		if m := mark.FindString(first); m != "" {
			end := 1 + until(lines[1:], func(line string) bool { return !strings.HasPrefix(line, "  ") })
			sign := strings.TrimSpace(m)
			if mark == bullet {
				sign = `\(bu`
			}
			fmt.Fprintf(r, ".IP %s 4\n", sign)
			return end, r.prose(strings.TrimPrefix(strings.Join(lines[:end], "\n"), m))
		}
	}
	end := until(lines, func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "```") || strings.HasPrefix(line, "|") || bullet.MatchString(line)
	})
	r.macro("PP", "")
	return end, r.prose(strings.Join(lines[:end], "\n"))
}

// until counts the lines before one that is the end.
func until(lines []string, end func(string) bool) int {
	for i, line := range lines {
		if end(line) {
			return i
		}
	}
	return len(lines)
}

// table writes one paragraph for each row: a terminal is too narrow for tables.
func (r *roff) table(lines []string) error {
	if len(lines) < 3 {
		return fmt.Errorf("a table without rows")
	}
	head := cells(lines[0])
	for _, line := range lines[2:] {
		row := cells(line)
		if len(row) != len(head) {
			return fmt.Errorf("%d cells below %d headings: %s", len(row), len(head), line)
		}
		r.macro("TP", "")
		if err := r.prose(row[0]); err != nil {
			return err
		}
		if err := r.prose(rowText(head[1:], row[1:])); err != nil {
			return err
		}
	}
	return nil
}

// rowText says the cells one after the other, each with its heading, but for the last of a narrow table: takes: a size; default: 64Mi. The
// size of /tmp.
func rowText(head, row []string) string {
	text := ""
	for i, cell := range row {
		if cell == "" {
			continue
		}
		if head[i] != "" && (i+1 < len(row) || len(row) > 3) {
			cell = head[i] + ": " + cell
		}
		switch {
		case text == "":
		case unicode.IsUpper(rune(cell[0])):
			text += ". "
		default:
			text += "; "
		}
		text += cell
	}
	return text
}

func cells(line string) []string {
	all := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

var (
	code   = regexp.MustCompile("`[^`]*`")
	link   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	strong = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	stress = regexp.MustCompile(`\*(\w[^*]*)\*`)
)

// prose writes text with a line's own markup. Code is set aside meanwhile: its stars and brackets mean themselves.
func (r *roff) prose(text string) error {
	if strings.Count(text, "`")%2 == 1 {
		return fmt.Errorf("a backquote without another: %s", text)
	}
	var spans []string
	text = code.ReplaceAllStringFunc(text, func(span string) string {
		spans = append(spans, span)
		return "\x01"
	})
	text = link.ReplaceAllString(escape(text), "$1")
	text = strong.ReplaceAllString(text, `\fB$1\fP`)
	text = stress.ReplaceAllString(text, `\fI$1\fP`)
	for _, span := range spans {
		text = strings.Replace(text, "\x01", `\fB`+literal(strings.Trim(span, "`"))+`\fP`, 1)
	}
	r.text(text)
	return nil
}
