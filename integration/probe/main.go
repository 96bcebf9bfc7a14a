// The probe is what integration tests run inside a box: it attempts one thing and reports, as JSON on stdout, what came of it.
// An attempt is a function in a table; what it answers is for the test to judge.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempts are all that the probe can try, by name. Each file of this package adds its own in a variable initialiser.
var attempts = map[string]func(args []string) (any, error){}

// register adds attempts; it returns a value so that a package-level variable can call it.
func register(more map[string]func(args []string) (any, error)) bool {
	for name, f := range more {
		if attempts[name] != nil {
			panic("two attempts are named " + name)
		}
		attempts[name] = f
	}
	return true
}

func main() {
	if len(os.Args) < 2 || attempts[os.Args[1]] == nil {
		names := make([]string, 0, len(attempts))
		for name := range attempts {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "probe: attempts:", names)
		os.Exit(2)
	}
	got, err := attempts[os.Args[1]](os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(3)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(3)
	}
}

// answer names what a call came to: "ok", or the errno's name.
func answer(err error) string {
	if err == nil {
		return "ok"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}
