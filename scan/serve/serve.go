// Package serve answers the HTTP API by which a registry of skills has one scanned before it is published: GET /health, POST /scan for a
// directory of this machine and POST /scan-upload for a zip. Whatever goes wrong is an answer that does not say is_safe.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/net/netutil"

	"skillbox/bundle/unzip"
	"skillbox/scan"
)

// Scanner scans the bundle in a directory, and returns when nothing of the scan runs any more: soon, where ctx ends. What keeps it from
// scanning is an error; then nothing is known about the skill.
type Scanner func(ctx context.Context, dir string, o Options) (*scan.Report, error)

// Options say how one scan is made.
type Options struct {
	Name string // what the caller calls the directory; dir may be a descriptor's path
}

// Config is what a service needs. The zero value of each field that does not say otherwise is a default.
type Config struct {
	Scan    Scanner                         // required
	Check   func(ctx context.Context) error // tries whether a sandbox can start, for /health; required
	Version string
	Temp    string // directory that is nobody else's; required

	Roots    []string      // directories below which /scan may look; none is that it is refused
	FailOn   scan.Severity // a finding at or above it makes is_safe false; Medium
	Parallel int           // scans that run at a time; one for each processor, at least two
	Queue    int           // requests that wait for one of these; 16
	Deadline time.Duration // of a request, from its header on; 280 s, which is also the most
	Receive  time.Duration // of a request's body; 60 s
	Upload   int64         // bytes of a request's body; 50 MiB
	Unpacked unzip.Limits  // of an upload's zip
	Token    string        // what a caller of /scan and /scan-upload must send as a bearer; "" is nothing
	AnyHost  bool          // answer whatever name the caller knows us by; otherwise loopback's only
	Log      *slog.Logger  // a line for each request; nil is none
}

const (
	// MaxDeadline is what remains of the 300 s that registries wait, when an ended scan takes as long as it may.
	MaxDeadline = 280 * time.Second
	patience    = 12 * time.Second // that an ended scan takes at most; then it is answered without waiting on

	idleTime       = 60 * time.Second
	headerTime     = 10 * time.Second
	maxHeader      = 16 << 10
	spareConns     = 64 // for callers of /health, and those who are told to come again
	defaultUpload  = 50 << 20
	defaultWaiting = 16
)

func (c Config) orDefault() Config {
	if c.FailOn == scan.None {
		c.FailOn = scan.Medium
	}
	if c.Parallel <= 0 {
		c.Parallel = max(2, runtime.NumCPU())
	}
	if c.Queue <= 0 {
		c.Queue = defaultWaiting
	}
	if c.Deadline <= 0 || c.Deadline > MaxDeadline {
		c.Deadline = MaxDeadline
	}
	if c.Receive <= 0 {
		c.Receive = time.Minute
	}
	if c.Upload <= 0 {
		c.Upload = defaultUpload
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server is a service. Close it when Run has returned.
type Server struct {
	Config
	roots  []root
	line   *line
	health *health
}

// New opens the roots, which must be directories.
func New(c Config) (*Server, error) {
	if c.Scan == nil || c.Check == nil || c.Temp == "" {
		return nil, errors.New("serve: no scanner, no check or no directory was given")
	}
	c = c.orDefault()
	s := &Server{Config: c, line: newLine(c.Parallel, c.Queue), health: &health{check: c.Check}}
	for _, name := range c.Roots {
		one, err := openRoot(name)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.roots = append(s.roots, one)
	}
	return s, nil
}

// Close closes the roots.
func (s *Server) Close() error {
	var all error
	for _, one := range s.roots {
		all = errors.Join(all, one.Close())
	}
	s.roots = nil
	return all
}

// What ends a request, as the cause of its context.
var (
	errLate     = errors.New("serve: the deadline of the request has passed")
	errStopping = errors.New("serve: the service is being stopped")
)

// Run answers on l until ctx ends. Scans that run then are canceled, and their callers told so. It closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	server := &http.Server{
		Handler: s.Handler(), BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, WriteTimeout: s.Deadline + patience + headerTime,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(netutil.LimitListener(l, s.Parallel+s.Queue+spareConns)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop(errStopping)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience+time.Second)
	defer cancel()
	err := server.Shutdown(last)
	if err != nil {
		err = errors.Join(fmt.Errorf("serve: %w", err), server.Close())
	}
	return err
}
