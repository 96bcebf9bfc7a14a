// Package mcp offers skills to clients of the Model Context Protocol: a server whose tools are what bundles offer to be called, each call in a
// box of its own.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skillbox/client"
	"skillbox/helper"
)

// Concurrency is how many calls run at a time where Options does not say; the others wait.
const Concurrency = 4

// Options are what the calls have in common. The zero value of each field is a default.
type Options struct {
	Version string // of this program, for the client

	Policy      string        // file; "" is no network and no files of the host's
	Mode        string        // who runs the calls: see client.Connect
	Timeout     time.Duration // of a call; 0 is the policy's
	Concurrency int           // most calls that run at a time; 0 is Concurrency
	Lines       bool          // what a skill writes to stderr goes to a client that asks for progress, line by line
}

// Server is one. Its tools are known from its beginning, and stay.
type Server struct {
	options Options
	server  *sdk.Server
	free    chan struct{} // holds a value for each call that runs
	calls   sync.WaitGroup
	over    context.Context // ends when calls are to: those of the library do not end with Serve's
	end     context.CancelFunc
}

// New makes a server of these bundles. None of their code runs for that.
func New(bundles []string, o Options) (*Server, error) {
	if o.Concurrency <= 0 {
		o.Concurrency = Concurrency
	}
	s := &Server{options: o, free: make(chan struct{}, o.Concurrency)}
	s.over, s.end = context.WithCancel(context.Background())
	s.server = sdk.NewServer(&sdk.Implementation{Name: "skillbox", Title: "skills in sandboxes", Version: o.Version}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Logging: &sdk.LoggingCapabilities{}},
		Logger:       slog.New(slog.DiscardHandler),
	})
	tools, err := toolsOf(bundles)
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		if err := s.add(t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add makes an error of what the library panics for: it takes a tool for the program's own, and this one's schema is a stranger's.
func (s *Server) add(t *tool) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = &helper.Error{Message: fmt.Sprintf("%s: %v", t.bundle, why), Hint: "the schema of its parameters cannot be offered to clients"}
		}
	}()
	s.server.AddTool(&sdk.Tool{Name: t.name, Title: t.title, Description: t.description, InputSchema: t.input}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return s.call(ctx, t, r)
	})
	return nil
}

// Serve answers one client, once: it closes its end or ctx ends. Calls that run then are killed; when Serve returns, nothing of them is left.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	stop := context.AfterFunc(ctx, s.end)
	defer stop()
	err := s.server.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
	s.end()
	s.calls.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, sdk.ErrConnectionClosed) {
		return nil
	}
	return err
}

// call runs a tool's skill in a fresh box. What the skill does wrong, and what is refused, is for the model to read; an error is the protocol's.
func (s *Server) call(ctx context.Context, t *tool, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	s.calls.Add(1)
	defer s.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.over, cancel)()
	c := client.Call{Bundle: t.bundle, Policy: s.options.Policy, Mode: s.options.Mode, Timeout: s.options.Timeout, Abrupt: true}
	if err := t.arguments(r.Params.Arguments, &c); err != nil {
		return failed("%v", err), nil
	}
	report := s.reporter(ctx, t, r)
	defer report.stop()
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	lines, err := report.begin(&c)
	if err != nil {
		return nil, err
	}
	result, err := client.Exec(ctx, c)
	stderr, closeErr := lines()
	if err = errors.Join(err, closeErr); err != nil {
		return nil, err
	}
	if c.Stderr != nil {
		result.Stderr = stderr
	}
	report.end(result)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return answer(result), nil
}

// Stdout moves the process's stdout to a descriptor of its own and lets stderr take its place, so that nothing which prints by mistake comes
// between the frames of the protocol.
func Stdout() (*os.File, error) { return moveStdout() }
