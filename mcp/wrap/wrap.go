// Package wrap runs a server of the Model Context Protocol that talks over stdin and stdout in a box, in the place of the server itself: who
// starts it need not know. What passes between client and server is not looked at and not changed.
package wrap

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skillbox/client"
	"skillbox/helper"
)

// State is where the server finds its state directory in the box. It is its home too.
const State = "/state"

// grace is what a server has to leave by itself once its input has ended. The specification (2025-06-18, lifecycle, shutdown) leaves the time
// to the client; skillboxd's own grace period lies between the SIGTERM that follows and SIGKILL.
const grace = 2 * time.Second

// defaults are for a program that talks for as long as somebody wants to listen: the policy's are for one that answers once.
func defaults() map[string]string {
	return map[string]string{"timeout": fmt.Sprintf("%.0fh", helper.SessionMost.Hours()), "resources.output": "64Gi"}
}

// Server is one server and what it gets. The zero value of each field but Command is a default.
type Server struct {
	Command []string // as a client of the protocol would start it
	Bundle  string   // directory that the server sees as /skill, its working directory; "" is an empty one
	Policy  string   // file; "" is no network and no files of the host's
	Mode    string   // who runs it: see client.Connect

	State    string            // directory that the server may write to at State, made if it is not there; "" is none
	Binds    []helper.Bind     // beside those of the policy
	Set      map[string]string // variables of its environment, beside those that the policy sets
	Timeout  time.Duration     // 0 is the policy's, or a day where it names none
	MaxFiles int               // as client.Call
	MaxBytes int64             // likewise

	// Denied is called with what the server was refused: while it runs, and with what is left when it has ended. Each is told of once, and not each
	// time. Nil is nobody.
	Denied func(helper.Denial)
}

// Run runs the server until it ends, its input does and the grace periods after that, or ctx. What it did is the result; the error says that
// it could not be started.
func (s *Server) Run(ctx context.Context, stdin, stdout, stderr *os.File) (*client.Result, error) {
	call := client.Call{
		Bundle: s.Bundle, Policy: s.Policy, Mode: s.Mode, Command: s.Command, Binds: s.Binds, Set: map[string]string{}, Defaults: defaults(),
		Timeout: s.Timeout, MaxFiles: s.MaxFiles, MaxBytes: s.MaxBytes, Stdout: stdout, Stderr: stderr,
	}
	for name, value := range s.Set {
		call.Set[name] = value
	}
	if s.State != "" {
		if err := s.keepState(&call); err != nil {
			return nil, err
		}
	}
	if call.Bundle == "" {
		dir, done, err := emptyDir()
		if err != nil {
			return nil, err
		}
		defer done()
		call.Bundle = dir
	}
	in, closeInput, err := watchable(stdin)
	if err != nil {
		return nil, err
	}
	defer closeInput()
	call.Stdin = in
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := afterInput(in, grace, cancel)
	defer stop()
	tell := s.teller()
	if s.Denied != nil {
		call.Denied = tell
	}
	result, err := client.Exec(ctx, call)
	if err == nil {
		tell(result.Denials)
	}
	return result, err
}

// maxTold bounds how many refusals are told of: a server that asks for ever new names is not to fill its client's log.
const maxTold = 256

// teller tells of each refusal once.
func (s *Server) teller() func([]helper.Denial) {
	told := map[helper.Denial]bool{}
	return func(all []helper.Denial) {
		for _, d := range all {
			// What only skillboxd knows of is not in all messages.
			one := helper.Denial{Kind: d.Kind, What: d.What, Rule: d.Rule, Hint: d.Hint}
			if s.Denied == nil || told[one] || len(told) >= maxTold {
				continue
			}
			told[one] = true
			s.Denied(d)
		}
	}
}

// keepState makes the state directory and shows it to the server.
func (s *Server) keepState(call *client.Call) error {
	if err := os.MkdirAll(s.State, 0o700); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	host, err := realPath(s.State)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	call.Binds = append(call.Binds, helper.Bind{Flag: "--state", Host: host, Path: State, Write: true})
	if _, there := call.Set["HOME"]; !there {
		call.Set["HOME"] = State
	}
	return nil
}

// realPath is a path as policies take it: absolute and without links.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// emptyDir is a bundle for a server that has none: one in the cache, which stays, or else one that is removed afterwards.
func emptyDir() (dir string, done func(), err error) {
	if cache := client.CacheDir(); cache != "" {
		dir = filepath.Join(cache, "empty")
		if os.MkdirAll(dir, 0o755) == nil {
			return dir, func() {}, nil
		}
	}
	if dir, err = os.MkdirTemp("", "skillbox-mcp-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.Remove(dir) }, nil // it is empty, and of this process alone
}
