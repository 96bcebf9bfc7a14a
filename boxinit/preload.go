package boxinit

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// harmless are options without a value that change nothing about how an interpreter starts and finds its script.
var harmless = map[string][]string{
	"python": {"-u", "-B", "-O", "-OO", "-b", "-bb", "-q"},
	"node":   {"--no-warnings", "--trace-warnings", "--trace-uncaught", "--enable-source-maps"},
}

// interpreterOf names the interpreter that can be preloaded whose program has this path, "" for any other program.
func interpreterOf(program string) string {
	name := path.Base(program)
	minor, python := strings.CutPrefix(name, "python3")
	switch {
	case python && (minor == "" || minor[0] == '.' && strings.Trim(minor[1:], "0123456789") == ""):
		return "python"
	case name == "node" || name == "nodejs":
		return "node"
	}
	return ""
}

// scriptAfter finds the script among the words that follow an interpreter's name, past harmless options.
func scriptAfter(interpreter string, words []string) (int, error) {
	for i, word := range words {
		if !strings.HasPrefix(word, "-") {
			return i, nil
		}
		if !slices.Contains(harmless[interpreter], word) {
			return -1, fmt.Errorf("%s %s is not started ahead of a call", interpreter, word)
		}
	}
	return -1, fmt.Errorf("%s without a script is not started ahead of a call", interpreter)
}

// Start cuts a command line behind the script: what comes before the cut is known ahead of a call, what follows are its arguments. It is
// false for what cannot be preloaded in any case; for the rest, the box finds that out.
func Start(argv []string) (words []string, ok bool) {
	if len(argv) == 0 {
		return nil, false
	}
	if name := interpreterOf(argv[0]); name != "" {
		at, err := scriptAfter(name, argv[1:])
		if err != nil {
			return nil, false
		}
		return argv[:at+2], true
	}
	return argv[:1], strings.Contains(argv[0], "/")
}
