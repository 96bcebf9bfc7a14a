package helper

import (
	"fmt"
	"os"
	"syscall"

	"skillbox/wire"
)

// SpawnPlain starts a skillboxd without namespaces, for the operations that Plain names; it refuses every other. It works where
// Spawn does not.
func SpawnPlain() (*Process, error) {
	program, err := Find("skillboxd")
	if err != nil {
		return nil, err
	}
	conn, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	process, err := os.StartProcess(program, []string{"skillboxd", "oneshot"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{nil, nil, os.Stderr, theirs}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("helper: start %s: %w", program, err)
	}
	return &Process{Conn: conn, process: process}, nil
}

// Kill ends skillboxd and every box below it at once; Close is still to be called. After skillboxd's own end it does nothing.
func (p *Process) Kill() {
	// The only possible failure is that it has ended already.
	_ = p.process.Kill()
}
