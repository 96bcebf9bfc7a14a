// skillbox-image brings OCI images into the store that boxes mount them from, and looks after it. The program skillbox becomes it by exec(2)
// for `skillbox image`, whose words it takes as they are.
package main

import (
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	// What is unpacked is for everybody to read, whatever the caller's other files are.
	unix.Umask(0o022)
	os.Exit(run(os.Args[1:]))
}
