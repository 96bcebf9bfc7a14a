package scan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"skillbox/audit"
)

// Bounds of the text that is searched for what was observed: a bundle may have more.
const (
	maxSourceFile  = 1 << 20
	maxSourceBytes = 32 << 20
	maxSourceFiles = 2000
	maxSnippet     = 200
)

// source is the text of a bundle, by line.
type source struct {
	names []string // in the order of the walk, so that the same bundle gives the same places
	lines map[string][]string
	whole bool // false is that there is more than is searched
}

// place is a line of a bundle; the zero value is none.
type place struct {
	file    string
	line    int // from 1
	snippet string
}

// readSource reads what is text. No link is followed, and nothing but regular files opened.
func readSource(dir string) (*source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	defer root.Close()
	s := &source{lines: map[string][]string{}, whole: true}
	total := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular():
			return nil
		case total > maxSourceBytes || len(s.names) >= maxSourceFiles:
			s.whole = false
			return fs.SkipAll
		}
		text, err := readText(root, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		if len(text) > maxSourceFile {
			s.whole = false
			return nil
		}
		if utf8.Valid(text) {
			total += len(text)
			s.names = append(s.names, name)
			s.lines[name] = strings.Split(string(text), "\n")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return s, nil
}

// readText reads a file up to one byte more than is searched.
func readText(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxSourceFile+1))
}

// find returns the first line of which match holds, code before documents.
func (s *source) find(match func(name, line string) bool) place {
	var documented place
	for _, name := range s.names {
		for i, line := range s.lines[name] {
			if !match(name, line) {
				continue
			}
			at := place{audit.Clean(name, 4096), i + 1, audit.Clean(strings.TrimSpace(line), maxSnippet)}
			if !document(name) {
				return at
			}
			if documented.line == 0 {
				documented = at
			}
		}
	}
	return documented
}

// holding returns the first line that has one of these words.
func (s *source) holding(words ...string) place {
	for _, word := range words {
		if len(word) < 3 {
			continue // it would be anywhere
		}
		if p := s.find(func(_, line string) bool { return strings.Contains(line, word) }); p.line > 0 {
			return p
		}
	}
	return place{}
}

// saying returns the first line that a pattern fits.
func (s *source) saying(what *regexp.Regexp) place {
	return s.find(func(_, line string) bool { return what.MatchString(line) })
}

// or is another place where there is none.
func (p place) or(other func() place) place {
	if p.line > 0 {
		return p
	}
	return other()
}

// document tells text that is for people and models from what is run.
func document(name string) bool {
	for _, ending := range []string{".md", ".txt", ".rst", ".html", ".json", ".yaml", ".yml"} {
		if strings.HasSuffix(strings.ToLower(name), ending) {
			return true
		}
	}
	return false
}

// readOutputs reads the beginning of each file that a skill left in /output, by name. There are none where the directory is not.
func readOutputs(dir string) (map[string]string, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	defer root.Close()
	all := map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || len(all) >= maxSourceFiles {
			return err
		}
		text, err := readText(root, name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return all, nil
}
