package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skillbox/helper"
)

// Bounds of a search.
const (
	maxDepth   = 12
	maxEntries = 200_000
	maxSkills  = 5000
)

// passedOver are directories that hold other things than skills.
var passedOver = []string{".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"}

// Find looks for skills in dir and below it, without following links; what lies inside a skill is part of it. Test files outside every skill
// add their cases to those that they name. The skills are sorted by their paths.
func Find(dir string) ([]*Skill, error) {
	f := &finding{root: dir, byPath: map[string]*Skill{}}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("suite: %s is no directory", dir))
	}
	if err := filepath.WalkDir(dir, f.visit); err != nil {
		return nil, fmt.Errorf("suite: %w", err)
	}
	for _, at := range f.tests {
		f.addCases(at)
	}
	all := make([]*Skill, 0, len(f.byPath))
	for _, s := range f.byPath {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Skill) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

type finding struct {
	root    string
	byPath  map[string]*Skill
	tests   []string // directories with a test file, relative to root
	entries int
}

func (f *finding) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		if path == f.root {
			return err
		}
		return fs.SkipDir // it cannot be looked into: a skill there could not be run either
	}
	if f.entries++; f.entries > maxEntries || len(f.byPath) > maxSkills {
		return &helper.Error{Message: fmt.Sprintf("%s holds more than %d files or %d skills", f.root, maxEntries, maxSkills), Hint: "name a directory further down"}
	}
	if !d.IsDir() {
		return nil
	}
	rel, err := filepath.Rel(f.root, path)
	if err != nil {
		return err
	}
	if rel != "." && (slices.Contains(passedOver, d.Name()) || strings.Count(rel, "/") >= maxDepth) {
		return fs.SkipDir
	}
	if isFile(path, TestFile) {
		f.tests = append(f.tests, rel)
	}
	layout := layoutOf(path)
	if layout == "" {
		return nil
	}
	f.byPath[rel] = &Skill{Path: rel, Layout: layout, dir: path}
	return fs.SkipDir
}

// layoutOf tells what kind of skill a directory is, "" for none.
func layoutOf(dir string) Layout {
	switch {
	case isFile(dir, "skillbox.yaml"):
		return Skillbox
	case isFile(dir, "SKILL.md"), isFile(dir, "skill.md"):
		return AgentSkill
	case isFile(dir, "manifest.yaml") && isFile(dir, "skill.py"):
		return Skillware
	case isFile(dir, engineFile):
		return SkillEngine
	case isFile(dir, "manifest.json") && isMCPB(filepath.Join(dir, "manifest.json")):
		return MCPB
	}
	return ""
}

const engineFile = ".skill-engine.toml"

// isFile says that there is something of that name: what is no regular file is for whoever reads the bundle to refuse.
func isFile(dir, name string) bool {
	info, err := os.Lstat(filepath.Join(dir, name))
	return err == nil && !info.IsDir()
}

// isMCPB tells an MCP bundle's manifest from the many other files of that name.
func isMCPB(path string) bool {
	data, err := readSmall(path)
	var manifest map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &manifest) != nil {
		return false
	}
	_, server := manifest["server"]
	return server && (manifest["manifest_version"] != nil || manifest["dxt_version"] != nil)
}

// addCases gives the cases of a test file to the skills that they are about. What is wrong with the file is told of the skill beside it, or
// where there is none, of the directory.
func (f *finding) addCases(at string) {
	beside := f.byPath[at]
	if beside == nil {
		beside = &Skill{Path: at, Layout: Directory, dir: filepath.Join(f.root, at)}
	}
	fail := func(err error) {
		beside.Err = err
		f.byPath[at] = beside
	}
	cases, err := readCases(filepath.Join(f.root, at))
	if err != nil {
		fail(err)
		return
	}
	for _, c := range cases {
		if filepath.IsAbs(c.Skill) || !filepath.IsLocal(filepath.Clean(c.Skill)) && c.Skill != "" {
			fail(fmt.Errorf("%s: case %q: skill %q does not lie below the file", filepath.Join(at, TestFile), c.Name, c.Skill))
			return
		}
		path := filepath.Join(at, c.Skill)
		s := f.byPath[path]
		if s == nil {
			if err := f.noLink(at, c.Skill); err != nil {
				fail(fmt.Errorf("%s: case %q: skill %q: %w", filepath.Join(at, TestFile), c.Name, c.Skill, err))
				return
			}
			s = &Skill{Path: path, Layout: Directory, dir: filepath.Join(f.root, path)}
			f.byPath[path] = s
		}
		s.Cases = append(s.Cases, c)
	}
}

// noLink refuses a directory that is reached by a link: what lies elsewhere is not the test file's to show.
func (f *finding) noLink(at, name string) error {
	dir := filepath.Join(f.root, at)
	for _, part := range strings.Split(filepath.Clean(name), "/") {
		dir = filepath.Join(dir, part)
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no directory, and links are not followed", dir)
		}
	}
	return nil
}
