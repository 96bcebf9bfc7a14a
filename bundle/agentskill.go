package bundle

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Lengths that agentskills.io/specification sets, in characters.
const (
	maxSkillName     = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// What of a frontmatter is kept of lists and mappings that have no bound of their own.
const (
	maxTools    = 200
	maxMetadata = 100
	maxWarnings = 20
	maxGuessed  = 200 // keys, and entries of one
)

// skillNote is the reading of one SKILL.md. What is wrong with it becomes a warning, for about one in fourteen of those that are published
// cannot be read by a YAML parser, and agents use them all the same.
type skillNote struct {
	*doc
	b *Bundle
}

// readAgentSkill reads the frontmatter of a SKILL.md (agentskills.io/specification: name and description are required; license,
// compatibility, metadata and allowed-tools are not). Keys unknown to it are let be, because hosts add their own. dirName is the name of the
// bundle's directory, which stands in for one that cannot be read. Only a security_policy that cannot be read is an error: to leave it out
// would give the skill more than it asks for.
func readAgentSkill(file string, data []byte, dirName string) (*Bundle, error) {
	s := &skillNote{doc: &doc{file: file}, b: &Bundle{Kind: AgentSkill, Manifest: file}}
	if !utf8.Valid(data) {
		s.warn(s.errorf(nil, "", "the file is not valid UTF-8; what is not is shown as U+FFFD"))
		data = bytes.ToValidUTF8(data, []byte("\ufffd"))
	}
	front, broken := frontmatter(file, data)
	d, err := parse(file, front)
	if broken == nil {
		broken = err
	}
	if broken != nil {
		if bytes.Contains(data, []byte("security_policy")) {
			return nil, broken
		}
		s.warn(broken)
		d = &doc{file: file, root: guess(front)}
	}
	s.doc = d
	s.fill(dirName)
	return s.b, d.declared(s.b)
}

// warn notes an error that is none.
func (s *skillNote) warn(err error) {
	if len(s.b.Warnings) < maxWarnings {
		s.b.Warnings = append(s.b.Warnings, strings.TrimPrefix(err.Error(), "bundle: "))
	}
}

// fill reads the keys of the specification.
func (s *skillNote) fill(dirName string) {
	b := s.b
	b.Name = s.line("name")
	switch {
	case b.Name == "":
		b.Name = dirName
		s.warn(s.errorf(s.get("name"), "name", "there is none that could be used; the skill is called %q, as its directory is", dirName))
	case !skillName(b.Name):
		s.warn(s.errorf(s.get("name"), "name", "the specification wants lower-case letters, digits and single - between them, at most %d", maxSkillName))
	}
	if b.Description = s.note("description", maxDescription); b.Description == "" {
		s.warn(s.errorf(s.get("description"), "description", "the specification wants one, and there is none that could be read"))
	}
	b.License = s.line("license")
	b.Compatibility = s.note("compatibility", maxCompatibility)
	b.AllowedTools = s.tools("allowed-tools")
	b.Metadata = s.mapping("metadata")
	if b.Version = s.line("version"); b.Version == "" {
		// The specification has no version of its own and shows it as an entry of metadata, which may have lines and tabs.
		if v := b.Metadata["version"]; title(v) {
			b.Version = v
		}
	}
}

// line is a text of one line, "" with a warning where it is none.
func (s *skillNote) line(key string) string {
	text, err := s.title(key, false)
	if err != nil {
		s.warn(err)
	}
	return text
}

// note is a text of several lines.
func (s *skillNote) note(key string, most int) string {
	text, err := s.text(key, false)
	if err != nil {
		s.warn(err)
	}
	if n := utf8.RuneCountInString(text); n > most {
		s.warn(s.errorf(s.get(key), key, "has %d characters; the specification allows %d", n, most))
	}
	return text
}

// tools reads a list of tools: a text with blanks between them, as the specification says, or with commas, or a list, as many write it.
func (s *skillNote) tools(key string) (all []string) {
	n := s.get(key)
	if n == nil {
		return nil
	}
	texts := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		texts = n.Content
	}
	for _, t := range texts {
		if t.Kind != yaml.ScalarNode {
			s.warn(s.errorf(t, key, "expected the name of a tool, found %s", kindName(t)))
			continue
		}
		for _, tool := range splitTools(t.Value) {
			if badWord(tool) || len(all) == maxTools {
				s.warn(s.errorf(t, key, "a tool is left out: it cannot be printed, or there are more than %d", maxTools))
				return all
			}
			all = append(all, tool)
		}
	}
	return all
}

// splitTools splits at blanks and commas that are not in parentheses: "Bash(git add:*) Read" are two.
func splitTools(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth = max(0, depth-1)
		}
		return depth == 0 && (unicode.IsSpace(r) || r == ',')
	})
}

// mapping reads texts by name. What is not a text but a list or a mapping is shown as it would be in JSON.
func (s *skillNote) mapping(key string) map[string]string {
	n := s.get(key)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		s.warn(s.errorf(n, key, "expected keys and values, found %s", kindName(n)))
		return nil
	}
	all := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		text := v.Value
		if v.Kind != yaml.ScalarNode {
			json, err := s.json(nil, v, join(key, k.Value))
			if err != nil {
				s.warn(err)
				continue
			}
			text = string(json)
		}
		if badWord(k.Value) || len(text) > maxDescription || len(all) == maxMetadata || strings.ContainsFunc(text, unprintable) {
			s.warn(s.errorf(k, join(key, k.Value), "is left out: it is too long, cannot be printed, or there are more than %d", maxMetadata))
			continue
		}
		all[k.Value] = text
	}
	return all
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// skillName tells whether a name is as the specification wants it.
func skillName(s string) bool {
	return len(s) <= maxSkillName && s[0] != '-' && s[len(s)-1] != '-' && !strings.Contains(s, "--") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// frontmatter returns the text between the --- that is the first line and the next line that is ---. The opening line is kept: it is
// YAML's own mark of a document, and so lines count as in the file. With an error it is the text that was most likely meant to be one.
func frontmatter(file string, data []byte) ([]byte, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	if !fence(first) {
		return nil, &Error{
			File: file, Line: 1, Column: 1, Message: "has no frontmatter",
			Hint: "the first line must be ---, then `name:` and `description:`, then a line --- again",
		}
	}
	end, plausible := len(first)+1, 0
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if fence(line) {
			return data[:end], nil
		}
		if text := bytes.TrimSpace(line); plausible == 0 && (len(text) == 0 || text[0] == '#') {
			plausible = end // the Markdown begins here
		}
		end += len(line) + 1
		rest = after
	}
	if plausible == 0 {
		plausible = len(data)
	}
	return data[:plausible], &Error{
		File: file, Line: 1, Column: 1, Message: "the frontmatter does not end",
		Hint: "close it with a line ---",
	}
}

func fence(line []byte) bool { return string(bytes.TrimRight(line, " \t\r")) == "---" }

// guess reads what looks like `key: value` line by line: values are the rest of the line, whatever it holds, and what is indented below a key
// belongs to it. It is a mapping of texts and of mappings of texts, as YAML would have been.
func guess(front []byte) *yaml.Node {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	var above *yaml.Node // the value that indented lines belong to
	for number, line := range strings.Split(string(front), "\n") {
		line = strings.TrimRight(line, " \t\r")
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text == "---" || text[0] == '#':
		case above != nil && (line[0] == ' ' || line[0] == '\t'):
			continued(above, text, number+1)
		default:
			above = nil
			if key, value, ok := strings.Cut(text, ":"); ok && len(root.Content) < 2*maxGuessed && lookup(root, key) == nil && !badWord(key) {
				above = scalar(unquoted(value), number+1)
				root.Content = append(root.Content, scalar(key, number+1), above)
			}
		}
	}
	return root
}

// continued adds an indented line to the value of the key above it.
func continued(above *yaml.Node, text string, line int) {
	if len(above.Content) >= 2*maxGuessed || len(above.Value) > maxGuessed*maxName {
		return
	}
	key, value, paired := strings.Cut(text, ":")
	item, listed := strings.CutPrefix(text, "- ")
	switch {
	case above.Kind == yaml.MappingNode && paired && lookup(above, key) == nil,
		above.Kind == yaml.ScalarNode && above.Value == "" && paired && !strings.Contains(key, " "):
		above.Kind, above.Tag = yaml.MappingNode, "!!map"
		above.Content = append(above.Content, scalar(strings.TrimSpace(key), line), scalar(unquoted(value), line))
	case above.Kind == yaml.SequenceNode && listed, above.Kind == yaml.ScalarNode && above.Value == "" && listed:
		above.Kind, above.Tag = yaml.SequenceNode, "!!seq"
		above.Content = append(above.Content, scalar(unquoted(item), line))
	case above.Kind == yaml.ScalarNode:
		if strings.Trim(above.Value, "|>+-") == "" { // it was the mark of a block
			above.Value = ""
		}
		above.Value = strings.TrimSpace(above.Value + " " + text)
	}
}

func scalar(text string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: line, Column: 1}
}

func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}

// dirTitle makes a name of a directory's.
func dirTitle(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == '\ufffd' {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	if name == "" || name == "." || name == "/" {
		return "skill"
	}
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
