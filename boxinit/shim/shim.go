// Package shim holds what runs inside python and node before a preloaded box's call comes: each interpreter starts it by itself, before
// the script, and runs the script when it is over. So it is the interpreter that reads the script, makes __main__, prints tracebacks and
// exits, as without a sandbox.
package shim

import _ "embed"

// Dir is where the files lie inside a preloaded box, read-only; Python and Node are their paths. Python's name is the one that it looks for.
const (
	Dir    = "/run/skillbox"
	Python = Dir + "/sitecustomize.py"
	Node   = Dir + "/preload.cjs"
)

// Control is the descriptor by which they talk with init, Variable the one that holds what they must know: the names of variables whose
// values come with the call, separated by commas.
const (
	Control  = 3
	Variable = "SKILLBOX_PRELOAD"
)

//go:embed sitecustomize.py
var python []byte

//go:embed preload.cjs
var node []byte

// Files returns the files by path. The caller does not change them.
func Files() map[string][]byte { return map[string][]byte{Python: python, Node: node} }
