// skillboxd does what needs privilege, or a user namespace of its own: it is started by skillbox with a socket as descriptor 3.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"skillbox/helper/server"
	"skillbox/nsjail"
	"skillbox/sandbox"
	"skillbox/wire"
)

func main() {
	nsjail.Init()
	if len(os.Args) != 2 || os.Args[1] != "oneshot" {
		fmt.Fprintln(os.Stderr, "skillboxd: started by skillbox, not by hand")
		os.Exit(125)
	}
	if err := server.Serve(wire.FromFD(3), enter); err != nil {
		fmt.Fprintln(os.Stderr, "skillboxd:", err)
		os.Exit(125)
	}
}

// enter gives up the caller's groups, where the kernel lets us, before the namespace is made ours.
func enter() (*sandbox.Host, error) {
	// EPERM: with a single id setgroups is denied for good (user_namespaces(7)); the box's report then shows them.
	if err := unix.Setgroups(nil); err != nil && err != unix.EPERM {
		return nil, fmt.Errorf("skillboxd: drop groups: %w", err)
	}
	return sandbox.Enter()
}
