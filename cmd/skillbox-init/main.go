// skillbox-init is pid 1 of every box. It is started by skillboxd only; see package boxinit.
package main

import (
	"os"
	"runtime"

	"skillbox/boxinit"
	"skillbox/seccomp/opener"
)

// version is set by the linker.
var version = "dev"

// The main goroutine stays on the first thread only if it is locked there before main starts, see boxinit.Main.
func init() { runtime.LockOSThread() }

func main() {
	// Outside a box, where skillbox asks which build this is. A box's init has one argument.
	if len(os.Args) == 2 && os.Args[1] == "version" {
		os.Stdout.WriteString(version + "\n")
		return
	}
	if len(os.Args) > 1 && os.Args[1] == opener.Word {
		if err := opener.Main(os.Args[2:]); err != nil {
			os.Stderr.WriteString("skillbox-init: " + err.Error() + "\n")
			os.Exit(125)
		}
		return
	}
	boxinit.Main()
}
