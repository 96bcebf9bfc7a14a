// Package client runs skills in sandboxes for a Go program: what `skillbox exec --json` does, without a process in between. It links
// neither cgo nor the sandbox itself; skillboxd, installed beside the program or where packages put it, does the work.
//
//	result, err := client.Exec(ctx, client.Call{Bundle: "skills/word-count", Params: []byte(`{"text":"a b a"}`)})
//
// An error says that skillbox could not be asked. Whatever the skill did, and what policy or host refused, is in the Result.
package client

import (
	"cmp"
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

	MountAt    string // in the box, where the bundle appears besides /skill; "" is nowhere
	PolicyName string // of Policy in messages; "" is its path

	Words []string // appended to the command of the policy or the bundle, or else the command
	Entry string   // a script of the bundle to run instead of its command

	WorkDir string // where the skill starts: an absolute path in the sandbox; "" is /skill, the bundle

	Command  []string          // the whole command, instead of what Policy, Bundle, Words and Entry say
	Set      map[string]string // variables of the skill's environment, beside those that the policy sets
	Binds    []helper.Bind     // paths of the host's, beside those of the policy
	Defaults map[string]string // values for fields of the policy that it does not name, such as "resources.output": "64Gi"
	MaxFiles int               // most files that the bundle may have; 0 is 10,000
	MaxBytes int64             // most bytes that it may have; 0 is 512 MiB

	RequireDigest   string // that the bundle must have, as `skillbox bundle digest` prints it; "" is any
	Signature       string // file that says who answers for the bundle; "" is the one beside it, if there is one
	TrustRemoteCode bool   // a bundle that the host does not trust may have more than the floor, as far as the host's ceiling goes

	Params  json.RawMessage   // one JSON value: the skill's standard input
	Inputs  map[string]string // files that the skill finds in /input, paths by name
	Env     map[string]string // values for the names that the policy passes on, secrets included; nil is the process's own environment
	Timeout time.Duration     // 0 is the policy's

	// Publish are sockets at which ports of the box are to be reached, which the policy's network.ingress names. They stay the caller's.
	Publish []*Listener

	Manifest *helper.Manifest // what a manifest of another system asks for within Policy, see policy.Manifest; nil is none

	Output         string // directory that takes the files left in /output, made if it is not there; existing files are not replaced. "" is nowhere
	AuditDir       string // where a helper of the caller's own records the call; "" is AuditDir(). The system service records where it always does
	IgnoreDeclared bool   // leave out what the bundle's own policy narrows, so that Policy alone holds: for who observes a skill

	// Denied is called while the skill runs with what was refused it since the last time; the Result has all of it. Nil is not asked for.
	Denied func([]helper.Denial)

	// Abrupt says that the skill is killed when the context ends, and not told to end first.
	Abrupt bool

	// The skill's own descriptors. Nil Stdin is nothing to read; nil Stdout and Stderr are captured and in the Result.
	Stdin, Stdout, Stderr *os.File
}

// Exec runs the call. When ctx ends, the skill is told to end, and killed if it does not; the Result's verdict is then canceled.
func Exec(ctx context.Context, c Call) (*Result, error) {
	result, err := exec(ctx, &c, "")
	if err != nil {
		return nil, err
	}
	// An image that the policy names and the store has not yet.
	if again, err := importFor(ctx, result.Error); err != nil || !again {
		return result, err
	}
	return exec(ctx, &c, "")
}

// exec runs a call of its own, or of a session.
func exec(ctx context.Context, c *Call, session string) (*Result, error) {
	op := helper.OpExec
	if session != "" {
		op = helper.OpSessionExec
	}
	s := &sending{request: &helper.Request{
		Version: helper.Version, Op: op, Session: session, BundleName: c.Bundle, PolicyName: cmp.Or(c.PolicyName, c.Policy), Words: c.Words, Entry: c.Entry, MountAt: c.MountAt, WorkDir: c.WorkDir,
		TimeoutMS: c.Timeout.Milliseconds(), Capture: c.Stdout == nil || c.Stderr == nil, CacheDir: CacheDir(), ImageDir: ImageDir(),
		AuditDir: cmp.Or(c.AuditDir, AuditDir()), AuditConfig: c.auditConfig(), Asker: asker(os.Getpid()), IgnoreBundlePolicy: c.IgnoreDeclared, Manifest: c.Manifest,
		Command: c.Command, EnvSet: c.Set, Binds: c.Binds, Defaults: c.Defaults, MaxFiles: c.MaxFiles, MaxBytes: c.MaxBytes, Follow: c.Denied != nil,
		RequireDigest: c.RequireDigest, TrustRemoteCode: c.TrustRemoteCode,
	}}
	defer s.close()
	if err := s.open(c); err != nil {
		return nil, err
	}
	outputs := func() error { return nil }
	if c.Output != "" {
		write, wait, err := Outputs(c.Output, false)
		if err != nil {
			return nil, err
		}
		s.request.Files, s.fds, outputs = append(s.request.Files, "outputs"), append(s.fds, int(write.Fd())), wait
	}
	began := time.Now()
	result, err := s.ask(ctx, c)
	if !s.unended { // else it holds the other end of the stream of outputs, which cannot be waited for
		err = errors.Join(err, outputs())
	}
	if err != nil {
		return nil, err
	}
	result.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	return result, s.capture.Fill(result)
}

// auditConfig is what says how the log is kept, sinks and all. Of one that the call has for itself nothing is said.
func (c *Call) auditConfig() string {
	if c.AuditDir != "" {
		return ""
	}
	return AuditConfig()
}

// sending is a request with its descriptors.
type sending struct {
	request *helper.Request
	fds     []int
	own     []*os.File // to be closed
	capture Capture
	unended bool // skillboxd did not end
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
		if err := s.openSignature(c.Bundle, c.Signature); err != nil {
			return err
		}
	}
	if c.Policy != "" {
		s.request.Ways = helper.WayTo(c.Policy)
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
	for _, l := range c.Publish {
		s.fds = l.Pass(s.request, s.fds)
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

// openSignature passes on what says who answers for the bundle, if anything does.
func (s *sending) openSignature(bundle, named string) error {
	find, of := FindSignature, bundle
	if named != "" {
		find, of = OpenSignature, named
	}
	f, err := find(of)
	if err != nil || f == nil {
		return err
	}
	s.add("signature", f, true)
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
		peer.Denied = c.Denied
		stop := cancelWith(ctx, peer, c.Abrupt)
		answer, err := peer.Do(s.request, s.fds, environ)
		killed := stop()
		closed := peer.Close()
		s.unended = errors.Is(closed, helper.ErrUnended)
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

// cancelWith ends the call with a context, abruptly or after a grace period. stop says whether skillboxd had to be killed.
func cancelWith(ctx context.Context, p *helper.Peer, abrupt bool) (stop func() (killed bool)) {
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
		if abrupt {
			_ = p.Tell(helper.Message{Cancel: &helper.Cancel{}}) // likewise
		}
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
