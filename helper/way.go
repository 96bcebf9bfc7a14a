package helper

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks are followed, as the kernel does (path_resolution(7)).
const maxLinks = 40

// WayTo is the file of that name, without links, and every directory and link in which a part of the name was found, from / on: who may
// write one of them says what the name leads to. Where it ends early, as those of pipes do, so does the way.
func WayTo(name string) (way []string) {
	pass := func(p string) {
		if !slices.Contains(way, p) {
			way = append(way, p)
		}
	}
	if !filepath.IsAbs(name) {
		wd, err := os.Getwd()
		if err != nil {
			return nil
		}
		name = wd + "/" + name // not cleaned: what .. leads to is known when the links before it are followed
	}
	at, links := "/", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		pass(at)
		part := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, part)
		target, err := os.Readlink(next)
		if err != nil { // it is none, or not there
			at = next
			continue
		}
		if links++; links > maxLinks {
			return way
		}
		pass(next)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	pass(at)
	return way
}
