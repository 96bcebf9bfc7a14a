//go:build linux

// boxes prepares boxes as skillboxd does, for the bench: it is a skillboxd without a protocol, and linked like it. It reads what to do as
// JSON from standard input and writes what it found to standard output. It must be pid 1 of mount and pid namespaces made for it, with
// skillbox-init beside it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/nsjail"
	"skillbox/policy"
	"skillbox/rootfs"
	"skillbox/sandbox"

	// Its memory is skillboxd's with everything that skillboxd holds.
	_ "skillbox/helper/server"
)

type task struct {
	Bundle string
	Counts []int // boxes that are ready when memory is looked at, ascending
	Calls  int   // boxes whose processor time is looked at, one after the other
}

type answer struct {
	Memory []memory
	CPU    *spending
}

func main() {
	nsjail.Init()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "boxes:", err)
		os.Exit(1)
	}
}

func run() error {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return err
	}
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil { // for what a box starts with, as skillboxd has it
		return err
	}
	h, err := sandbox.Enter(true)
	if err != nil {
		return err
	}
	plan, err := compile(h, t.Bundle)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	var a answer
	if len(t.Counts) > 0 {
		a.Memory, err = remember(h, plan, t.Counts)
	}
	if err == nil && t.Calls > 0 {
		a.CPU, err = spend(h, plan, t.Calls)
	}
	if err = errors.Join(err, h.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// compile decides on a bundle without a policy.
func compile(h *sandbox.Host, path string) (*sandbox.Plan, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, err := bundle.Read(dir)
	if err != nil {
		return nil, err
	}
	granted, err := policy.Grant(nil, policy.Default(), nil)
	if err != nil {
		return nil, err
	}
	var s sandbox.Sources
	if s.Bundle.Source, err = rootfs.SourceOf(int(dir.Fd())); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, err
	}
	s.Bundle.UID, s.Bundle.GID = int(st.Uid), int(st.Gid)
	return sandbox.Compile(h, granted.Policy, b, s)
}

func prepare(h *sandbox.Host, plan *sandbox.Plan) (*sandbox.Box, error) {
	id, err := h.Reserve()
	if err != nil {
		return nil, err
	}
	return sandbox.Prepare(h, plan, id)
}

// call runs true in a box, and takes the box away.
func call(b *sandbox.Box) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	defer null.Close()
	fd := int(null.Fd())
	r, err := b.Run(sandbox.Call{Argv: []string{"/usr/bin/true"}, Stdio: [3]int{fd, fd, fd}})
	if err == nil && !r.Success {
		err = fmt.Errorf("true came to %s, exit code %d", r.Verdict, r.ExitCode)
	}
	return errors.Join(err, b.Close())
}

// settle waits for what goes on in the background, in the kernel too.
func settle() { time.Sleep(500 * time.Millisecond) }
