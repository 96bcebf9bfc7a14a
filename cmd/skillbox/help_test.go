package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skillbox/doctor"
)

// commands is the tree, flattened; cobra's own help command explains itself.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && !sub.Hidden {
			all = append(all, commands(sub)...)
		}
	}
	return all
}

func TestEveryCommandTeaches(t *testing.T) {
	for _, c := range commands(rootCommand()) {
		t.Run(c.CommandPath(), func(t *testing.T) {
			if c.Short == "" || c.Long == "" || c.Example == "" {
				t.Errorf("Short %q, Long %q, Example %q", c.Short, c.Long, c.Example)
			}
			if strings.HasSuffix(c.Short, ".") || len(c.Short) > 76 {
				t.Errorf("Short is one line without a full stop: %q", c.Short)
			}
			for line := range strings.Lines(c.Long + "\n" + c.Example) {
				if len([]rune(line)) > 101 {
					t.Errorf("too long for a terminal: %q", line)
				}
			}
			for line := range strings.Lines(c.Example) {
				if !strings.HasPrefix(line, "  ") || !strings.Contains(line, c.Root().Name()) {
					t.Errorf("no example of this program, or not indented: %q", line)
				}
			}
			if !strings.Contains(c.Example, c.CommandPath()) {
				t.Errorf("no example of %s", c.CommandPath())
			}
		})
	}
}

func TestEveryFlagIsExplained(t *testing.T) {
	for _, c := range commands(rootCommand()) {
		for _, line := range strings.Split(c.LocalFlags().FlagUsages(), "\n") {
			if strings.Contains(line, "--") && len(strings.Fields(line)) < 3 {
				t.Errorf("%s: %q", c.CommandPath(), line)
			}
		}
	}
}

// complete asks as the shell does, and returns the offers with the directive as the last.
func complete(t *testing.T, args ...string) []string {
	t.Helper()
	root := rootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, args...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestTheShellIsOfferedWhatFits(t *testing.T) {
	const (
		anything = ":0"
		nothing  = ":4"
		byEnding = ":8"
		folders  = ":16"
	)
	for _, c := range []struct {
		args string
		want []string
	}{
		{"exec ", []string{folders}},
		{"exec --json ", []string{folders}},
		{"plan ", []string{folders}},
		{"policy check p.yaml ", []string{nothing}},
		{"exec bundle -- ", []string{anything}},
		{"exec --policy ", []string{"yaml", "yml", byEnding}},
		{"exec -p ", []string{"yaml", "yml", byEnding}},
		{"plan --policy ", []string{"yaml", "yml", byEnding}},
		{"exec --output ", []string{folders}},
		{"exec --input ", []string{anything}},
		{"session ", []string{"exec", "start", "stop", nothing}},
		{"session start ", []string{folders}},
		{"session start --policy ", []string{"yaml", "yml", byEnding}},
		{"session exec --mode ", []string{"auto", "system", "user", nothing}},
		{"session exec 0123456789abcdef -- ", []string{anything}},
		{"session exec --output ", []string{folders}},
		{"policy check ", []string{"yaml", "yml", byEnding}},
		{"policy ", []string{"check", "explain", "init", "learn", "schema", nothing}},
		{"completion ", []string{"bash", "zsh", "fish", nothing}},
		{"do", []string{"doctor", nothing}},
		{"kill ", []string{nothing}}, // no service runs
		{"logs ", []string{nothing}},
		{"logs -n ", []string{nothing}},
		{"audit ", []string{"export", "head", "report", "search", "show", "stats", "tail", "verify", nothing}},
		{"audit verify --dir ", []string{folders}},
		{"audit show --dir /nonexistent ", []string{nothing}},
		{"audit export --shape ", []string{"jsonl", "skillhub", "ocsf", nothing}},
		{"stats --", []string{"--help", "--json", "--prometheus", nothing}},
	} {
		if got := complete(t, strings.Split(c.args, " ")...); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.args, got, c.want)
		}
	}
}

func TestEachShellGetsItsScript(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_skillbox", "zsh": "#compdef skillbox", "fish": "complete -c skillbox"} {
		stdout, code := capture(t, "completion", shell)
		if code != 0 || !strings.Contains(stdout, mark) {
			t.Errorf("%s: exit %d, %d bytes", shell, code, len(stdout))
		}
	}
	if _, code := capture(t, "completion", "tcsh"); code != 125 {
		t.Errorf("an unknown shell: exit %d", code)
	}
}

// capture runs a command in this process and returns what it printed.
func capture(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdout")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = f
	code := run(args)
	os.Stdout = old
	f.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), code
}

func TestDifferentVersionsAreWarnedOf(t *testing.T) {
	three := []doctor.Program{
		{Name: "skillbox", Path: "/b/skillbox", Version: "v1"}, {Name: "skillboxd", Path: "/b/skillboxd", Version: "v1"}, {Name: "skillbox-init", Path: "/b/skillbox-init", Version: "v1"},
	}
	if v := compareVersions(three); len(v.Warnings) > 0 || v.Init != "v1" {
		t.Errorf("%+v", v)
	}
	three[1].Version = "v2"
	three[2] = doctor.Program{Name: "skillbox-init", Error: "not installed"}
	if v := compareVersions(three); len(v.Warnings) != 2 || v.Skillboxd != "v2" || v.Init != "" {
		t.Errorf("%+v", v)
	}
}

func TestAFirstPolicyNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	if err := writeNew(path, "version: 1\n"); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(path, "other"); err == nil {
		t.Error("an existing file was overwritten")
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if err := writeNew(link, "other"); err == nil {
		t.Error("a link was followed")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "version: 1\n" {
		t.Errorf("%q %v", text, err)
	}
}
