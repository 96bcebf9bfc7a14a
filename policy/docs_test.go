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

func rows(b *bytes.Buffer, at string, table []key) {
	fmt.Fprint(b, "| key | takes | default | meaning |\n|---|---|---|---|\n")
	walk(at, table, func(path string, k key) {
		def := k.def
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", path, k.shape.accepts, def, k.doc)
	})
}

func reference() []byte {
	var b bytes.Buffer
	rows(&b, "", keys)
	b.WriteString("\nA bind of `filesystem.read` or `filesystem.write`:\n\n")
	rows(&b, "", bindKeys)
	b.WriteString("\nAn entry of `network.ingress`:\n\n")
	rows(&b, "", ingressKeys)
	b.WriteString("\nA rule of `network.egress` (a rule of `network.deny` takes all but `unsafe_wildcard`):\n\n")
	rows(&b, "", egressKeys)
	return b.Bytes()
}

func TestDocsListEveryKeyOfAnAuditLog(t *testing.T) {
	const page, begin, end = "../docs/audit.md", "<!-- keys: generated from the key table by go test ./policy -run Docs -update -->\n", "<!-- end of keys -->\n"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers", page)
	}
	var b bytes.Buffer
	rows(&b, "", auditLogKeys)
	b.WriteString("\nA sink:\n\n")
	rows(&b, "", sinkKeys)
	now := before + begin + b.String() + end + after
	if now != string(old) && !*update {
		t.Fatalf("%s is out of date; run go test ./policy -run Docs -update", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range strings.Split(string(old), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if _, err := ParseAuditLog("audit.yaml", []byte(block)); err != nil {
			t.Errorf("%s\n%v", block, err)
		}
	}
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
