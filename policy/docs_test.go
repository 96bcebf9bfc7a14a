package policy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "rewrite the reference in docs/policy.md")

const (
	page  = "../docs/policy.md"
	begin = "<!-- reference: generated from the key table by go test ./policy -run Docs -update -->\n"
	end   = "<!-- end of reference -->\n"
)

func TestDocsListEveryKeyWithItsDefault(t *testing.T) {
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		t.Fatalf("%s has no markers", page)
	}
	now := bytes.Join([][]byte{before, []byte(begin), reference(), []byte(end), after}, nil)
	if bytes.Equal(old, now) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; run go test ./policy -run Docs -update", page)
	}
	if err := os.WriteFile(page, now, 0o644); err != nil {
		t.Fatal(err)
	}
}

func reference() []byte {
	var b bytes.Buffer
	rows := func(at string, table []key) {
		fmt.Fprint(&b, "| key | takes | default | meaning |\n|---|---|---|---|\n")
		walk(at, table, func(path string, k key) {
			def := k.def
			if def != "" {
				def = "`" + def + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", path, k.shape.accepts, def, k.doc)
		})
	}
	rows("", keys)
	b.WriteString("\nA bind of `filesystem.read` or `filesystem.write`:\n\n")
	rows("", bindKeys)
	b.WriteString("\nA rule of `network.egress` (a rule of `network.deny` takes all but `unsafe_wildcard`):\n\n")
	rows("", egressKeys)
	return b.Bytes()
}

func TestDocsShowOnlyPoliciesThatAreAccepted(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		shown++
		if strings.Contains(block, "security_policy:") {
			var manifest yaml.Node
			if err := yaml.Unmarshal([]byte(block), &manifest); err != nil {
				t.Fatal(err)
			}
			top := manifest.Content[0].Content
			if _, err := ParseDeclared("SKILL.md", top[len(top)-1]); err != nil {
				t.Errorf("%s\n%v", block, err)
			}
			continue
		}
		if _, err := Parse("docs/policy.md", []byte(block)); err != nil {
			t.Errorf("%s\n%v", block, err)
		}
	}
	if shown < 4 {
		t.Errorf("only %d policies are shown", shown)
	}
}
