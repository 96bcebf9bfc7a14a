// Package client runs skills in sandboxes for a Go program: what `skillbox exec --json` does, without a process in between. It links
// neither cgo nor the sandbox itself; skillboxd, installed beside the program or where packages put it, does the work.
//
//	result, err := client.Exec(ctx, client.Call{Bundle: "skills/word-count", Params: []byte(`{"text":"a b a"}`)})
//
// An error says that skillbox could not be asked. Whatever the skill did, and what policy or host refused, is in the Result.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Result is the envelope of `skillbox exec --json`.
type Result = helper.Result

// Call is one run of a skill. The zero value of each field but Bundle is a default.
type Call struct {
	Bundle string // directory
	Policy string // file; "" is no network and no files of the host's
	Mode   string // who runs it, see Connect

	Words []string // appended to the command of the policy or the bundle, or else the command
	Entry string   // a script of the bundle to run instead of its command

	Params  json.RawMessage   // one JSON value: the skill's standard input
	Inputs  map[string]string // files that the skill finds in /input, paths by name
	Env     map[string]string // values for the names that the policy passes on, secrets included; nil is the process's own environment
	Timeout time.Duration     // 0 is the policy's

	// The skill's own descriptors. Nil Stdin is nothing to read; nil Stdout and Stderr are captured and in the Result.
	Stdin, Stdout, Stderr *os.File
}

// Exec runs the call. When ctx ends, the skill is told to end, and killed if it does not; the Result's verdict is then canceled.
func Exec(ctx context.Context, c Call) (*Result, error) { return exec(ctx, &c, "") }

// exec runs a call of its own, or of a session.
func exec(ctx context.Context, c *Call, session string) (*Result, error) {
	op := helper.OpExec
	if session != "" {
		op = helper.OpSessionExec
	}
	s := &sending{request: &helper.Request{
		Version: helper.Version, Op: op, Session: session, BundleName: c.Bundle, PolicyName: c.Policy, Words: c.Words, Entry: c.Entry,
		TimeoutMS: c.Timeout.Milliseconds(), Capture: c.Stdout == nil || c.Stderr == nil, CacheDir: CacheDir(),
	}}
	defer s.close()
	if err := s.open(c); err != nil {
		return nil, err
	}
	began := time.Now()
	result, err := s.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	result.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	return result, s.capture.Fill(result)
}

// sending is a request with its descriptors.
type sending struct {
	request *helper.Request
	fds     []int
	own     []*os.File // to be closed
	capture Capture
}

func (s *sending) close() {
	for _, f := range s.own {
		f.Close()
	}
}

func (s *sending) add(role string, f *os.File, own bool) {
	s.request.Files, s.fds = append(s.request.Files, role), append(s.fds, int(f.Fd()))
	if own {
		s.own = append(s.own, f)
	}
}

// open opens what the call names, with the caller's rights.
func (s *sending) open(c *Call) error {
	if s.request.Session == "" {
		if err := s.openFile("bundle", c.Bundle, unix.O_DIRECTORY); err != nil {
			return err
		}
	}
	if c.Policy != "" {
		if err := s.openFile("policy", c.Policy, 0); err != nil {
			return err
		}
	}
	if c.Params != nil {
		f, err := memory("params", c.Params)
		if err != nil {
			return err
		}
		s.add("params", f, true)
	}
	for name, path := range c.Inputs {
		if err := s.openFile("input", path, 0); err != nil {
			return err
		}
		s.request.Inputs = append(s.request.Inputs, name)
	}
	return s.stdio(c)
}

// openFile opens without making a file of the runtime's that could be switched to non-blocking: the descriptor's state is shared.
func (s *sending) openFile(role, path string, flags int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|flags, 0)
	if err != nil {
		return &os.PathError{Op: "open " + role, Path: path, Err: err}
	}
	s.add(role, os.NewFile(uintptr(fd), path), true)
	return nil
}

func (s *sending) stdio(c *Call) error {
	for i, given := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		role := []string{"stdin", "stdout", "stderr"}[i]
		if given != nil {
			s.add(role, given, false)
			continue
		}
		if i == 0 {
			if err := s.openFile(role, os.DevNull, 0); err != nil {
				return err
			}
			continue
		}
		f, err := memory(role, nil)
		if err != nil {
			return err
		}
		s.add(role, f, true)
		if i == 1 {
			s.capture.Stdout = f
		} else {
			s.capture.Stderr = f
		}
	}
	return nil
}

// memory makes a file that has no name.
func memory(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if len(content) > 0 {
		if _, err := f.WriteAt(content, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("client: %s: %w", name, err), f.Close())
		}
	}
	return f, nil
}

// ask sends the request to one skillboxd after the other until one takes it.
func (s *sending) ask(ctx context.Context, c *Call) (*Result, error) {
	environ := os.LookupEnv
	if c.Env != nil {
		environ = func(name string) (string, bool) { v, ok := c.Env[name]; return v, ok }
	}
	mode := c.Mode
	for tries := 0; ; tries++ {
		connect := Connect
		if s.request.Session != "" {
			connect = ConnectSession
		}
		peer, err := connect(mode, s.request)
		if err != nil {
			return nil, err
		}
		stop := cancelWith(ctx, peer)
		answer, err := peer.Do(s.request, s.fds, environ)
		killed := stop()
		closed := peer.Close()
		if next, again := Again(mode, tries, err); again {
			mode = next
			continue
		}
		switch {
		case err != nil && killed:
			result := helper.Failure(helper.Canceled, &helper.Error{Message: "canceled by the caller"})
			result.ExitCode = helper.CodeCanceled
			return result, nil
		case err != nil:
			return nil, errors.Join(err, closed)
		case answer.Result == nil:
			return nil, errors.Join(errors.New("client: skillboxd sent no result"), closed)
		case closed != nil:
			answer.Result.Warnings = append(answer.Result.Warnings, closed.Error())
		}
		return answer.Result, nil
	}
}

// patience is how long after it was told to end, the grace period of the skill included, a call may go on before skillboxd is killed.
const patience = 5 * time.Second

// cancelWith ends the call with a context. stop says whether skillboxd had to be killed.
func cancelWith(ctx context.Context, p *helper.Peer) (stop func() (killed bool)) {
	if ctx.Done() == nil {
		return func() bool { return false }
	}
	done, killed := make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-done:
			killed <- false
			return
		case <-ctx.Done():
		}
		_ = p.Tell(helper.Message{Cancel: &helper.Cancel{}}) // it may have ended, which Do reports
		select {
		case <-done:
			killed <- false
		case <-time.After(patience):
			p.Kill()
			killed <- true
		}
	}()
	return func() bool { close(done); return <-killed }
}
