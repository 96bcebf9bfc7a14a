package engine

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"skillbox/helper"
)

// MaxFile is how many bytes a manifest may have, and maxDepth how deep its tables and lists may lie in one another.
const (
	MaxFile  = 256 << 10
	maxDepth = 32
)

// Manifest is one that was read.
type Manifest struct {
	file     string
	env      func(string) (string, bool)
	defaults defaults
	skills   map[string]*skill
}

// Load reads a manifest; env is the caller's environment. An error is a *helper.Error with its place in the file.
func Load(file string, data []byte, env func(string) (string, bool)) (*Manifest, error) {
	d := &document{file: file}
	fail := func(line, column int, message, hint string) error {
		return &helper.Error{File: file, Line: line, Column: column, Message: message, Hint: hint}
	}
	if len(data) > MaxFile {
		return nil, fail(1, 1, fmt.Sprintf("the manifest is larger than %d KiB", MaxFile>>10), "")
	}
	if !utf8.Valid(data) {
		return nil, fail(1, 1, "the manifest is not valid UTF-8", "save it as UTF-8 text")
	}
	d.index(data)
	if err := d.parse(data); err != nil {
		return nil, err
	}
	root := map[string]any{}
	if err := toml.Unmarshal(data, &root); err != nil {
		var e *toml.DecodeError
		if errors.As(err, &e) {
			line, column := e.Position()
			return nil, fail(line, column, "not TOML: "+strings.TrimPrefix(e.Error(), "toml: "), "")
		}
		return nil, fail(1, 1, "not TOML: "+strings.TrimPrefix(err.Error(), "toml: "), "")
	}
	return d.manifest(&table{d: d, values: root}, env)
}

// document knows where in the file everything stands.
type document struct {
	file   string
	lines  []int             // offset of each line's begin
	places map[string][2]int // by path, its words separated by NUL
	counts map[string]int    // tables of each list of tables
}

func (d *document) index(data []byte) {
	d.lines = []int{0}
	for i, c := range data {
		if c == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
}

func (d *document) at(offset int) [2]int {
	line := sort.SearchInts(d.lines, offset+1) - 1
	return [2]int{line + 1, offset - d.lines[line] + 1}
}

// parse notes where keys and values stand. What is wrong with the text as a whole, keys that come twice and the like, is Unmarshal's to find.
func (d *document) parse(data []byte) error {
	d.places, d.counts = map[string][2]int{}, map[string]int{}
	var p unstable.Parser
	p.Reset(data)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = d.header(e)
			if err := d.tooDeep(table); err != nil {
				return err
			}
		case unstable.KeyValue:
			if err := d.keyValue(table, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// header returns the path of a table, with a number for each list of tables on the way.
func (d *document) header(e *unstable.Node) []string {
	var path []string
	for keys := e.Key(); keys.Next(); {
		path = append(path, string(keys.Node().Data))
		d.note(path, keys.Node())
		joined := strings.Join(path, "\x00")
		last := keys.IsLast()
		if e.Kind == unstable.ArrayTable && last {
			d.counts[joined]++
		}
		if n := d.counts[joined]; n > 0 {
			path = append(path, strconv.Itoa(n-1))
			d.note(path, keys.Node())
		}
	}
	return path
}

func (d *document) note(path []string, n *unstable.Node) {
	joined := strings.Join(path, "\x00")
	if _, ok := d.places[joined]; !ok || n.Kind != unstable.Key {
		d.places[joined] = d.at(int(n.Raw.Offset))
	}
}

func (d *document) tooDeep(path []string) error {
	if len(path) <= maxDepth {
		return nil
	}
	at := d.places[strings.Join(path[:maxDepth], "\x00")]
	return &helper.Error{File: d.file, Line: at[0], Column: at[1], Message: fmt.Sprintf("nested more than %d deep", maxDepth)}
}

func (d *document) keyValue(table []string, e *unstable.Node) error {
	path := append([]string{}, table...)
	for keys := e.Key(); keys.Next(); {
		path = append(path, string(keys.Node().Data))
		d.note(path, keys.Node())
		if err := d.tooDeep(path); err != nil {
			return err
		}
	}
	return d.value(path, e.Value())
}

func (d *document) value(path []string, n *unstable.Node) error {
	if err := d.tooDeep(path); err != nil {
		return err
	}
	switch n.Kind {
	case unstable.Array:
		i := 0
		for items := n.Children(); items.Next(); i++ {
			item := append(append([]string{}, path...), strconv.Itoa(i))
			if items.Node().Raw.Length > 0 {
				d.note(item, items.Node())
			}
			if err := d.value(item, items.Node()); err != nil {
				return err
			}
		}
	case unstable.InlineTable:
		for items := n.Children(); items.Next(); {
			if err := d.keyValue(path, items.Node()); err != nil {
				return err
			}
		}
	default:
		if n.Raw.Length > 0 {
			d.note(path, n)
		}
	}
	return nil
}
