package suite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const maxFile = 1 << 20

// Case is one run of a skill, and what is expected of it. The zero value of each field is what `skillbox exec` has without the flag.
type Case struct {
	Name    string            `yaml:"name"`     // "case N" without one
	Skill   string            `yaml:"skill"`    // the skill's directory below the file's, "" for the file's own
	Tool    string            `yaml:"tool"`     // SKILL or SKILL@INSTANCE of a .skill-engine.toml
	Entry   string            `yaml:"entry"`    // --entry
	Words   []string          `yaml:"words"`    // after --
	Params  yaml.Node         `yaml:"params"`   // any value; goes as JSON
	Stdin   *string           `yaml:"stdin"`    // of a case without params
	Inputs  map[string]string `yaml:"inputs"`   // paths below the file's directory, by names in /input
	Env     map[string]string `yaml:"env"`      // values for the names that the policy passes
	Policy  yaml.Node         `yaml:"policy"`   // a path below the file's directory, or a policy
	MountAt string            `yaml:"mount_at"` // --mount-at
	Timeout string            `yaml:"timeout"`  // as in a policy
	Expect  Expect            `yaml:"expect"`

	dir     string // the test file's
	callers bool   // the test file is the caller's own word, and not what somebody brought with the skills
	timeout time.Duration
	params  json.RawMessage
}

// Expect is what a case has to come to. What is not mentioned may be anything, but where neither exit nor verdict is, the exit code is 0.
type Expect struct {
	Exit     *int   `yaml:"exit"`
	Verdict  string `yaml:"verdict"`
	Stdout   *Match `yaml:"stdout"`
	Stderr   *Match `yaml:"stderr"`
	Result   *Match `yaml:"result"`   // of the skill's result as JSON
	Error    *Match `yaml:"error"`    // of the message and its hint
	Denials  *Match `yaml:"denials"`  // of lines "KIND WHAT"
	Warnings *Match `yaml:"warnings"` // of a line for each
	Outputs  *Match `yaml:"outputs"`  // of a file name in each line
	Changes  *Match `yaml:"changes"`  // of lines "KIND PATH": what the skill changed in its own directory
}

// readCases reads the test file in dir. It is ours, and strict: a key that is misspelt would be a case that tests nothing.
func readCases(dir string) ([]*Case, error) {
	at := filepath.Join(dir, TestFile)
	data, err := readSmall(at)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: not valid UTF-8", at)
	}
	var file struct {
		Version int     `yaml:"version"`
		Cases   []*Case `yaml:"cases"`
	}
	err = yaml.Load(data, &file, yaml.WithKnownFields(), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(64))))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", at, err)
	case file.Version != 1:
		return nil, fmt.Errorf("%s: version: must be 1, the version of the format", at)
	case len(file.Cases) == 0:
		return nil, fmt.Errorf("%s: cases: there is none", at)
	}
	for i, c := range file.Cases {
		if c == nil {
			return nil, fmt.Errorf("%s: case %d is empty", at, i+1)
		}
		if c.Name == "" {
			c.Name = fmt.Sprintf("case %d", i+1)
		}
		c.dir = dir
		if err := c.prepare(); err != nil {
			return nil, fmt.Errorf("%s: case %q: %w", at, c.Name, err)
		}
	}
	return file.Cases, nil
}

// toolName is SKILL or SKILL@INSTANCE of a manifest.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._@-]*$`)

// prepare reads what is written as text.
func (c *Case) prepare() (err error) {
	if c.Tool != "" && !toolName.MatchString(c.Tool) {
		return fmt.Errorf("tool: %q is no name of a skill: letters, digits and . _ @ -, not one of these first", c.Tool)
	}
	if c.Timeout != "" {
		if c.timeout, err = time.ParseDuration(c.Timeout); err != nil || c.timeout < time.Millisecond {
			return fmt.Errorf("timeout: %q is no duration of at least 1ms, such as 10s", c.Timeout)
		}
	}
	if c.Params.Kind != 0 {
		if c.params, err = asJSON(&c.Params); err != nil {
			return fmt.Errorf("params: %w", err)
		}
		if c.Stdin != nil {
			return errors.New("stdin: params are the skill's standard input already")
		}
	}
	return nil
}

// asJSON is a YAML value in JSON.
func asJSON(n *yaml.Node) (json.RawMessage, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Match is an expectation of a text. In YAML it is the text itself, line ends around it aside; or a list of parts that the text has to contain;
// or a mapping of equals, contains, lacks, matches (a regular expression) and json (a value whose members must all be in the text's).
type Match struct {
	equals          *string
	contains, lacks []string
	matches         *regexp.Regexp
	json            any
	isJSON          bool
}

// UnmarshalYAML reads the three forms.
func (m *Match) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return m.plain(n)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if err := m.key(key.Value, value); err != nil {
			return fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err)
		}
	}
	return nil
}

func (m *Match) plain(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode(&m.contains)
	}
	m.equals = new(string)
	return n.Decode(m.equals)
}

func (m *Match) key(key string, n *yaml.Node) (err error) {
	list := func(into *[]string) error {
		if n.Kind == yaml.ScalarNode {
			*into = []string{n.Value}
			return nil
		}
		return n.Decode(into)
	}
	switch key {
	case "equals":
		m.equals = new(string)
		return n.Decode(m.equals)
	case "contains":
		return list(&m.contains)
	case "lacks":
		return list(&m.lacks)
	case "matches":
		m.matches, err = regexp.Compile(n.Value)
		return err
	case "json":
		text, err := asJSON(n)
		if err != nil {
			return err
		}
		m.isJSON = true
		return json.Unmarshal(text, &m.json)
	}
	return errors.New("unknown key; there are equals, contains, lacks, matches and json")
}

// readSmall reads a regular file of at most maxFile bytes, without waiting for one that is something else.
func readSmall(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(data) > maxFile {
		err = fmt.Errorf("%s: is larger than 1 MiB", path)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), err
}
