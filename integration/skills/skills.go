// Package skills writes a directory of skills in the layouts that `skillbox test` knows: each key of each manifest is in one of them, as its
// specification has it, and in the ways in which published skills have it. Beside them lies a test file with what is expected of each.
//
// Skills that people would write are in the directory hand, with test files of their own.
package skills

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

//go:embed all:hand
var hand embed.FS

// skill is one that is generated.
type skill struct {
	path  string            // "agent/minimal"
	files map[string]string // by path in the skill; one that begins with #! is executable
	cases string            // YAML: the keys of a case, or several as a list
}

// Write makes all skills below dir, which exists and is empty. It returns how many there are in each layout's directory.
func Write(dir string) (map[string]int, error) {
	counts := map[string]int{}
	var cases strings.Builder
	cases.WriteString("version: 1\ncases:\n")
	var all []skill
	for _, some := range [][]skill{agentSkills(), brokenSkills(), skillwareSkills(), skillboxSkills(), engineSkills()} {
		all = append(all, some...)
	}
	for _, s := range all {
		counts[path.Dir(s.path)]++
		for name, content := range s.files {
			if err := write(filepath.Join(dir, s.path, name), content); err != nil {
				return nil, err
			}
		}
		cases.WriteString(s.listed())
	}
	cases.WriteString(onACopy)
	if err := write(filepath.Join(dir, "data", "notes.txt"), "a b a\n"); err != nil {
		return nil, err
	}
	if err := write(filepath.Join(dir, "skillbox.test.yaml"), cases.String()); err != nil {
		return nil, err
	}
	counts["hand"] = 0
	return counts, fs.WalkDir(hand, "hand", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.Count(at, "/") == 2 && (path.Base(at) == "SKILL.md" || path.Base(at) == "manifest.yaml" || path.Base(at) == "skillbox.yaml") {
			counts["hand"]++
		}
		content, err := hand.ReadFile(at)
		if err != nil {
			return err
		}
		return write(filepath.Join(dir, at), string(content))
	})
}

// onACopy is what the skill's own test file could not grant it.
const onACopy = `- skill: hand/self-noting
  name: on a copy it tells what became of it
  words: [scripts/note.sh, remember]
  policy: {rootfs: {bundle: copy-on-write}}
  expect: {stdout: "- remember", changes: "changed index.md\nadded notes/\nadded notes/log.md"}
- skill: hand/self-noting
  name: what it removes is told too
  words: [scripts/forget.sh]
  policy: {rootfs: {bundle: copy-on-write}}
  expect: {changes: removed index.md}
`

// listed are the skill's cases as entries of the test file.
func (s *skill) listed() string {
	var b strings.Builder
	list := s.cases
	if !strings.HasPrefix(list, "- ") {
		list = "- " + strings.ReplaceAll(strings.TrimRight(list, "\n"), "\n", "\n  ")
	}
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "- ") {
			fmt.Fprintf(&b, "- skill: %s\n  %s", s.path, strings.TrimPrefix(line, "- "))
		} else {
			b.WriteString(line)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func write(at, content string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if strings.HasPrefix(content, "#!") {
		mode = 0o755
	}
	return os.WriteFile(at, []byte(content), mode)
}

// Layouts are the names of the directories that Write makes, sorted.
func Layouts(counts map[string]int) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
