package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"skillbox/helper"
	"skillbox/scan"
	"skillbox/scan/serve"
)

// serving are the flags of scan serve.
type serving struct {
	config                            serve.Config
	options                           scan.Options
	listen, failOn, tokenFile, parent string
	clock                             string
	exposed                           bool
}

func serveCommand() *cobra.Command {
	var s serving
	c := &cobra.Command{
		Use:   "serve",
		Short: "Scan the skills that a registry sends, over HTTP",
		Long: `Answer the HTTP API of skill scanners: GET /health, POST /scan for a directory below one of --root,
and POST /scan-upload for a zip in the form's field "file". Each skill is run as skillbox scan runs
it. is_safe says that no finding is as severe as --fail-on, and nothing more; where a skill could
not be scanned, the answer is an error.

The API knows no users: whoever reaches it may use it. So it listens at loopback or at a socket,
unless --expose-to-network says otherwise, and asks for a token where --token-file names one.`,
		Example: `  skillbox scan serve
  skillbox scan serve --listen unix:/run/skillbox-scan/socket --root /srv/skills
  curl -F file=@skill.zip http://127.0.0.1:8000/scan-upload`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8000", "`address` to listen at: HOST:PORT or unix:PATH")
	f.BoolVar(&s.exposed, "expose-to-network", false, "listen at an address that other machines can reach")
	f.StringArrayVar(&s.config.Roots, "root", nil, "`directory` below which /scan may scan; repeatable (default: /scan is refused)")
	f.IntVar(&s.config.Parallel, "parallel", 0, "`number` of scans at a time (default: one for each processor, at least 2)")
	f.IntVar(&s.config.Queue, "queue", 16, "`number` of requests that may wait; more are told to come again")
	f.StringVar(&s.failOn, "fail-on", scan.Medium.String(), "least `severity` that makes is_safe false: INFO, LOW, MEDIUM, HIGH or CRITICAL")
	f.DurationVar(&s.options.Budget, "budget", scan.DefaultBudget, "longest `time` for the runs of one skill together")
	f.DurationVar(&s.config.Deadline, "deadline", serve.MaxDeadline, "longest `time` from a request to its answer")
	f.StringVar(&s.clock, "clock", "", "run every skill again with the clock ahead by this `time`, such as +30d; needs libfaketime")
	f.StringVar(&s.tokenFile, "token-file", "", "`file` with a token that callers must send as a bearer")
	f.StringVar(&s.parent, "temp", os.TempDir(), "`directory` for uploads while they are scanned")
	complete(c, "root", nil, cobra.ShellCompDirectiveFilterDirs)
	complete(c, "temp", nil, cobra.ShellCompDirectiveFilterDirs)
	complete(c, "fail-on", []string{"INFO", "LOW", "MEDIUM", "HIGH", "CRITICAL"}, cobra.ShellCompDirectiveNoFileComp)
	for _, name := range []string{"listen", "parallel", "queue", "budget", "deadline", "clock"} {
		complete(c, name, nil, cobra.ShellCompDirectiveNoFileComp)
	}
	return c
}

// run serves until a signal comes.
func (s *serving) run(ctx context.Context) (err error) {
	if err := s.prepare(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	temp, err := serve.OpenTemp(s.parent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, temp.Close()) }()
	// What a scan lays out lies below it too, so that a service that is killed leaves nothing that the next one does not find.
	if err := os.Setenv("TMPDIR", temp.Path); err != nil {
		return err
	}
	s.config.Temp = temp.Path
	if err := s.probe(ctx); err != nil {
		return err
	}
	service, err := serve.New(s.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	l, err := serve.Listen(s.listen, s.exposed)
	if errors.Is(err, serve.ErrExposed) {
		return &helper.Error{Message: err.Error(), Hint: "put a proxy that knows its callers in front, or say --expose-to-network, with --token-file"}
	}
	if err != nil {
		return err
	}
	s.config.Log.Info("listening", "address", l.Addr().Network()+":"+l.Addr().String(), "version", version)
	return service.Run(ctx, l)
}

// prepare reads the flags.
func (s *serving) prepare() (err error) {
	c := &s.config
	if c.FailOn, err = scan.ParseSeverity(strings.ToUpper(s.failOn)); err != nil || c.FailOn == scan.None {
		return &helper.Error{Message: fmt.Sprintf("--fail-on %q is no severity", s.failOn), Hint: "INFO, LOW, MEDIUM, HIGH or CRITICAL"}
	}
	if c.Deadline < time.Second || c.Deadline > serve.MaxDeadline {
		return &helper.Error{Message: fmt.Sprintf("--deadline must be from 1s to %s: registries wait 5m for an answer", serve.MaxDeadline)}
	}
	if s.options.Budget < time.Second || s.options.Budget > c.Deadline {
		return &helper.Error{Message: fmt.Sprintf("--budget must be from 1s to the deadline of %s", c.Deadline)}
	}
	if s.options.Clock, err = scan.ParseClock(s.clock); err != nil {
		return err
	}
	if c.Parallel < 0 || c.Parallel > 1000 || c.Queue < 1 || c.Queue > 10_000 {
		return &helper.Error{Message: "--parallel must be from 1 to 1000, and --queue from 1 to 10000"}
	}
	if s.tokenFile != "" {
		if c.Token, err = readToken(s.tokenFile); err != nil {
			return err
		}
	}
	c.AnyHost = s.exposed || strings.HasPrefix(s.listen, "unix:")
	c.Version, c.Check, c.Scan = version, s.probe, s.scan
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return nil
}

// minToken is what nobody guesses over a network.
const minToken = 16

// readToken reads a file that is its user's and group's: systemd gives a service its credentials with an ACL, which looks like the group's.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode()&0o027 != 0 {
		return "", &helper.Error{Message: fmt.Sprintf("%s: everybody may read the token, or its group change it", path), Hint: "chmod 0600 " + path}
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", &helper.Error{Message: fmt.Sprintf("%s: a token is one word of at least %d characters", path, minToken), Hint: "openssl rand -hex 32 > " + path}
	}
	return token, nil
}

func (s *serving) scan(ctx context.Context, dir string, _ serve.Options) (*scan.Report, error) {
	o := s.options
	o.Bundle = dir
	return scan.Scan(ctx, o)
}

// probe scans a skill that does nothing, which takes all that any scan takes.
func (s *serving) probe(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	manifest := "version: 1\nname: probe\ncommand: [\"true\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "skillbox.yaml"), []byte(manifest), 0o644); err != nil {
		return err
	}
	report, err := scan.Scan(ctx, scan.Options{Bundle: dir, Budget: s.options.Budget})
	if err != nil {
		return err
	}
	for _, run := range report.Runs {
		if run.ExitCode != 0 {
			return fmt.Errorf("the program true ended with exit code %d in a sandbox (%s)", run.ExitCode, run.Verdict)
		}
	}
	return nil
}
