package engine

import (
	"fmt"
	"strings"
)

// expand puts the caller's variables in: ${V} must be set, ${V:-d} is d where it is not, and ${V:?m} then says m. The second answer
// names the variables whose value came in.
func (r *resolving) expand(t text) (string, []string, error) {
	var out strings.Builder
	var used []string
	rest := t.text
	for {
		before, after, found := strings.Cut(rest, "${")
		out.WriteString(before)
		if !found {
			return out.String(), used, nil
		}
		expression, more, closed := strings.Cut(after, "}")
		if !closed {
			return "", nil, t.fail("${ is not closed by }", "")
		}
		value, name, err := r.value(t, expression)
		if err != nil {
			return "", nil, err
		}
		if name != "" {
			used = append(used, name)
		}
		out.WriteString(value)
		rest = more
	}
}

// value is what one ${…} comes to, and the variable whose value that is, "" for none.
func (r *resolving) value(t text, expression string) (value, used string, err error) {
	if strings.Contains(expression, "${") {
		return "", "", t.fail(fmt.Sprintf("${%s}: a variable within another's default is not expanded", expression), "write the default out")
	}
	name, fallback, optional := strings.Cut(expression, ":-")
	message, demanding := "", false
	if !optional {
		name, message, demanding = strings.Cut(expression, ":?")
	}
	if !variableName(name) {
		return "", "", t.fail(fmt.Sprintf("${%s} is not a variable", expression), "${NAME}, ${NAME:-default} and ${NAME:?message} are")
	}
	value, set := r.Env(name)
	switch {
	case set:
		return value, name, nil
	case optional:
		return fallback, "", nil
	case demanding:
		return "", "", t.fail(fmt.Sprintf("%s is not set: %s", name, message), "")
	}
	return "", "", t.fail(name+" is not set", fmt.Sprintf("set it, or write ${%s:-default}", name))
}

// plain expands what is one word for somebody else: a colon, a comma or a line break that a variable brings would be read as more than
// its value.
func (r *resolving) plain(t text) (string, error) {
	s, _, err := r.expand(t)
	if err != nil {
		return "", err
	}
	if i := strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c == 0x7F }); i >= 0 {
		return "", t.fail(fmt.Sprintf("%q holds a control character", s), "")
	}
	return s, nil
}

// path expands a path of the host's.
func (r *resolving) path(t text) (string, error) {
	s, err := r.plain(t)
	if err != nil {
		return "", err
	}
	switch {
	case strings.ContainsRune(s, ':'):
		return "", t.fail(fmt.Sprintf("%q holds a colon, which would begin another part", s), "name a path without one")
	case strings.HasPrefix(s, "~"):
		return "", t.fail(fmt.Sprintf("%q: ~ is not expanded", s), "write ${HOME}")
	case s == "":
		return "", t.fail("a path is empty", "")
	}
	return s, nil
}

// real follows a path of the host's to what is there, and refuses what no manifest may show. What hides behind other names, skillbox's own
// state and the like, package policy refuses, which sees the same path.
func (r *resolving) real(t text, path string) (Found, error) {
	found, err := r.Real(path)
	if err != nil {
		return found, t.fail(err.Error(), "it must be there: nothing is made for a skill")
	}
	if why := r.forbidden(found); why != "" {
		if found.Path != path {
			why = "it leads to " + found.Path + ", and " + why
		}
		return found, t.fail(fmt.Sprintf("%s may not be shown to a skill: %s", path, why), "name a directory of the skill's own")
	}
	return found, nil
}

func (r *resolving) forbidden(found Found) string {
	switch {
	case found.Path == "/":
		return "it is the whole host"
	case found.Socket != "":
		return found.Socket + " is the door to a service of the host, and may be root's"
	case !found.Dir && !found.File:
		return "it is neither a file nor a directory"
	case r.Home != "" && beneath(found.Path, r.Home):
		return "it is or holds the caller's home, credentials included"
	}
	return ""
}

// beneath tells whether p is dir or lies below it; both are clean.
func beneath(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
