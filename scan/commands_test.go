package scan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skillbox/bundle"
)

// shown is each attempt on a line.
func shown(all []attempt) (lines []string) {
	for _, a := range all {
		lines = append(lines, strings.TrimSpace(strings.Join(a.argv, " ")+" "+string(a.params)))
	}
	return lines
}

func TestWhatIsRun(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"n":{"type":"integer","minimum":3},"on":{"enum":["x","y"]},"list":{"type":"array","items":{"type":"boolean"}}}}`)
	for name, c := range map[string]struct {
		bundle   bundle.Bundle
		declared []string
		commands [][]string
		params   []string
		want     []string
	}{
		"its command":              {bundle.Bundle{Command: []string{"python3", "main.py"}}, nil, nil, nil, []string{"python3 main.py"}},
		"its schema's parameters":  {bundle.Bundle{Command: []string{"x"}, ParamsSchema: schema}, nil, nil, nil, []string{`x {"a":"example"}`, `x {"a":"example","list":[true],"n":3,"on":"x"}`}},
		"parameters given":         {bundle.Bundle{Command: []string{"x"}, ParamsSchema: schema}, nil, nil, []string{"1", "[]"}, []string{"x 1", "x []"}},
		"the declared policy's":    {bundle.Bundle{Command: []string{"x"}}, []string{"y", "z"}, nil, nil, []string{"y z"}},
		"a command given":          {bundle.Bundle{Command: []string{"x"}, Scripts: []string{"scripts/a.sh"}}, nil, [][]string{{"sh", "-c", "id"}}, nil, []string{"sh -c id"}},
		"an agent skill's scripts": {bundle.Bundle{Scripts: []string{"scripts/a.sh", "scripts/b.py"}}, nil, nil, nil, []string{"/skill/scripts/a.sh", "/skill/scripts/a.sh --help", "/skill/scripts/b.py", "/skill/scripts/b.py --help"}},
		"its only script":          {bundle.Bundle{Command: []string{"/skill/scripts/a.sh"}, Scripts: []string{"scripts/a.sh"}}, nil, nil, nil, []string{"/skill/scripts/a.sh", "/skill/scripts/a.sh --help"}},
	} {
		all, err := attempts(&c.bundle, c.declared, c.commands, c.params)
		if got := shown(all); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, got, c.want)
		}
	}
	if all, err := attempts(&bundle.Bundle{}, nil, nil, nil); err == nil {
		t.Errorf("nothing to run is no error: %q", shown(all))
	}
}

func TestWordsAreAShells(t *testing.T) {
	for text, want := range map[string]string{
		"a b":                `["a" "b"]`,
		"  a\t b\n":          `["a" "b"]`,
		`sh -c 'echo "x y"'`: `["sh" "-c" "echo \"x y\""]`,
		`a "" 'b c'"d"\ e`:   `["a" "" "b cd e"]`,
		`a '\'`:              `["a" "\\"]`,
		`$HOME *`:            `["$HOME" "*"]`,
		"":                   "", "'a": "", `a \`: "", `"" a`: "",
	} {
		words, err := Words(text)
		if got := fmt.Sprintf("%q", words); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}
