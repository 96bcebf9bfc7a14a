package policy

import (
	"regexp"
	"sync"
)

// lazy is a regular expression that is compiled when it is first used: every box starts its first stage from a program that links
// this package, and compiling these took 2 ms of it.
type lazy struct {
	pattern string
	compile func() *regexp.Regexp
}

func lazily(pattern string) lazy {
	return lazy{pattern, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

func (l lazy) MatchString(s string) bool            { return l.compile().MatchString(s) }
func (l lazy) FindStringSubmatch(s string) []string { return l.compile().FindStringSubmatch(s) }
func (l lazy) String() string                       { return l.pattern }
