package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"skillbox/bundle"
	"skillbox/doctor"
	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/policy"
	"skillbox/sandbox"
)

// values are what the code says, by the names that documents use in `VALUE`<!-- is NAME -->. Figures are those of docs/performance.md.
func values(t *testing.T) map[string]string {
	t.Helper()
	quota := policy.DefaultQuota()
	var capabilities []string
	for _, c := range helper.RootNeeds {
		capabilities = append(capabilities, c.Name)
	}
	version := func(mode string) string {
		return fmt.Sprintf("%d.%d", doctor.OldestKernel[mode][0], doctor.OldestKernel[mode][1])
	}
	all := map[string]string{
		"kernel.root":       version("root"),
		"kernel.rootless":   version("rootless"),
		"capabilities.root": strings.Join(capabilities, " "),
		"hostname.box":      sandbox.Hostname,
		"hostname.neutral":  sandbox.NeutralHostname,
		"exit.failed":       fmt.Sprint(helper.CodeFailed),
		"quota.calls":       fmt.Sprint(quota.Calls),
		"quota.boxes":       fmt.Sprint(quota.Boxes),
		"quota.memory":      fmt.Sprintf("%dGi", quota.Memory>>30),
		"quota.pids":        fmt.Sprint(quota.Pids),
		"bundle.files":      fmt.Sprint(bundle.DefaultFiles),
		"bundle.bytes":      fmt.Sprintf("%d MiB", bundle.DefaultBytes>>20),
		"path.host":         helper.Ceiling,
		"path.service":      access.Path,
		"path.audit-config": helper.UsersAuditConfig,
		"path.audit":        helper.AuditDir(0, os.Getenv),
		"path.socket":       helper.SystemDir + "/" + helper.SystemSocket,
	}
	var defaults yaml.Node
	if err := yaml.Unmarshal(policy.Default().YAML(), &defaults); err != nil {
		t.Fatal(err)
	}
	scalars(all, "policy", defaults.Content[0])
	page, err := os.ReadFile("performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^    +(\S.*?)  +([0-9.]+ (?:ms|MB|MiB))`).FindAllStringSubmatch(string(page), -1) {
		if name := "figure." + m[1]; all[name] == "" { // the first of several
			all[name] = m[2]
		}
	}
	return all
}

// scalars adds the values below a mapping by their paths.
func scalars(all map[string]string, at string, n *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		path := at + "." + n.Content[i].Value
		if value := n.Content[i+1]; value.Kind == yaml.ScalarNode {
			all[path] = value.Value
		} else {
			scalars(all, path, value)
		}
	}
}

var claim = regexp.MustCompile("`([^`]+)`<!-- is ([^>]+?) -->")

func TestWhatDocumentsSayIsWhatTheCodeSays(t *testing.T) {
	is := values(t)
	for page, least := range map[string]int{"operators.md": 25, "security-review.md": 3, "threat-model.md": 1, "manifest.md": 4} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		claims := claim.FindAllStringSubmatch(string(text), -1)
		if marks := strings.Count(string(text), "<!-- is "); len(claims) != marks || marks < least {
			t.Errorf("docs/%s has %d marks, at least %d of which should stand behind a value; %d do", page, marks, least, len(claims))
		}
		for _, c := range claims {
			if value, known := is[c[2]]; !known || value != c[1] {
				t.Errorf("docs/%s says that %s is %s; the code says %q", page, c[2], c[1], value)
			}
		}
	}
}

// /tmp, the home and /output are told in one row.
func TestScratchSpacesAreOfOneSize(t *testing.T) {
	is := values(t)
	if is["policy.filesystem.tmp"] != is["policy.filesystem.home"] || is["policy.filesystem.tmp"] != is["policy.filesystem.output"] {
		t.Error("docs/operators.md says that they are")
	}
}

func TestManifestsInTheDocumentAreRead(t *testing.T) {
	page, err := os.ReadFile("manifest.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- manifest: (\\S+) -->\n```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(shown) != 3 {
		t.Fatalf("%d manifests", len(shown))
	}
	kinds := map[string]bundle.Kind{"skillbox.yaml": bundle.Skillbox, "SKILL.md": bundle.AgentSkill, "manifest.yaml": bundle.Skillware}
	for _, m := range shown {
		file, text := m[1], m[2]
		b, err := read(t, file, text)
		if err != nil || b.Kind != kinds[file] || len(b.Warnings) > 0 {
			t.Errorf("%s: %v, %+v", file, err, b)
			continue
		}
		if p, err := policy.ParseDeclared(b.DeclaredFile, b.Declared); err != nil || len(p.Network.Egress) != 1 {
			t.Errorf("%s: %v, %+v", file, err, p)
		}
		if _, err := read(t, file, text+"execution: {mode: none}\n"); (err != nil) != (file == "skillbox.yaml") {
			t.Errorf("%s with an execution: %v", file, err)
		}
		if _, err := read(t, file, text, "policy.yaml", "version: 1\n"); err == nil {
			t.Errorf("%s and policy.yaml both declare", file)
		}
	}
}

// read makes a bundle of a manifest, and of more files.
func read(t *testing.T, file, text string, more ...string) (*bundle.Bundle, error) {
	t.Helper()
	if file == "SKILL.md" {
		text = "---\n" + text + "---\nAsk for the city.\n"
	}
	path := filepath.Join(t.TempDir(), "weather")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	files := append([]string{file, text, "skill.py", "class Skill:\n    pass\n"}, more...)
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(path, files[i]), []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return bundle.Read(dir)
}
