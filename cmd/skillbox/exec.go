package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/client"
	"skillbox/helper"
	"skillbox/output"
)

func execCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "exec [flags] BUNDLE [-- WORD…]",
		Short: "Run a skill",
		Long: `Run the skill in BUNDLE. Where the policy or the bundle names a command, the words after -- are
appended to it; otherwise they are the command. The skill finds its parameters on standard
input and in the file named by SKILLBOX_PARAMS_FILE, and runs with /skill (the bundle) as its
working directory.

The system service runs the skill where the administrator has installed it (--mode system); else
a helper of your own (--mode user), which the first call starts: it keeps sandboxes ready, each
for one call, and leaves after SKILLBOX_IDLE (10m) without calls. SKILLBOX_NO_DAEMON=1 forbids
to start one: then, or with --mode oneshot, a helper runs this call alone.

Exit code: the skill's own; 124 timed out; 125 skillbox refused or failed; 126 not executable;
127 not found; 128+n killed by signal n; 137 out of memory; 130 canceled; 153 output limit;
159 killed by the system-call filter. With --json the verdict says which it was.`,
		Example: `  skillbox exec --params '{"text":"a b a"}' examples/word-count
  skillbox exec --json --policy policy.yaml --input report.pdf --output out/ examples/pdf-text
  skillbox exec bundle/ -- python3 scripts/x.py --help`,
		RunE: func(c *cobra.Command, args []string) error { return o.exec(args, c.ArgsLenAtDash()) },
	}
	o.register(c)
	c.Flags().StringVar(&o.mode, "mode", "auto", "`who` runs it: system, the service of this machine; user, one of your own that keeps boxes ready; oneshot, a helper for this call alone; auto is the first that there is")
	completeFlag(c, "mode", modes)
	return c
}

// exec runs the skill and passes its exit code on. With --json every outcome is one envelope on stdout.
func (o *options) exec(args []string, dash int) error {
	result, err := o.runSkill(args, dash)
	if err != nil {
		e := plainly(err)
		if !o.json {
			return e
		}
		result = helper.Failure(helper.Failed, e)
	}
	if o.json {
		if err := printJSON(result); err != nil {
			return err
		}
	} else if result.Error != nil {
		complain(result.Error)
	}
	if !o.json {
		warn(result.Warnings)
	}
	return exitCode(result.ExitCode)
}

// plainly words an error for the envelope.
func plainly(err error) *helper.Error {
	var e *helper.Error
	if !errors.As(err, &e) {
		e = &helper.Error{Message: err.Error()}
	}
	return e
}

func printJSON(v any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false) // it is not for a web page, and < would become six bytes
	return encoder.Encode(v)
}

// runSkill sends the request and gathers what belongs in the envelope.
func (o *options) runSkill(args []string, dash int) (*helper.Result, error) {
	op := helper.OpExec
	if o.session != "" {
		op = helper.OpSessionExec
	}
	r, fds, err := o.request(op, args, dash)
	if err != nil {
		return nil, err
	}
	took := time.Now()
	process, err := o.connect(r)
	if err != nil {
		return nil, err
	}
	capture, err := o.addStdio(r, &fds)
	if err != nil {
		return nil, errors.Join(err, process.Close())
	}
	outputs, err := o.receiveOutputs(r, &fds)
	if err != nil {
		return nil, errors.Join(err, process.Close())
	}
	result, err := o.ask(process, r, fds, outputs)
	if err != nil {
		return nil, err
	}
	result.DurationMS = float64(time.Since(took).Microseconds()) / 1000
	return result, capture.Fill(result)
}

// connect finds who is to run a call: a session's is its service's.
func (o *options) connect(r *helper.Request) (*helper.Peer, error) {
	if o.session != "" {
		return client.ConnectSession(o.mode, r)
	}
	return client.Connect(o.mode, r)
}

// ask has the request answered, by another skillboxd if this one is a service that leaves.
func (o *options) ask(process *helper.Peer, r *helper.Request, fds []int, outputs func() error) (*helper.Result, error) {
	defer func() { go exitOn(o.notified()) }()
	for tries := 0; ; tries++ {
		stop := o.forwardSignals(process, r)
		answer, err := process.Do(r, fds, os.LookupEnv)
		canceled, killed := stop()
		closeErr := process.Close()
		if next, again := client.Again(o.mode, tries, err); again && !canceled {
			o.mode = next
			if process, err = o.connect(r); err != nil {
				return nil, errors.Join(err, outputs())
			}
			continue
		}
		var unended []string
		if errors.Is(closeErr, helper.ErrUnended) {
			// Nor can the stream of outputs be waited for, whose other end it holds.
			unended, closeErr, outputs = []string{closeErr.Error()}, nil, func() error { return nil }
		}
		if err != nil && (killed || canceled && errors.Is(err, helper.ErrRetired)) {
			result := helper.Failure(helper.Canceled, &helper.Error{Message: "canceled by the caller"})
			result.ExitCode = helper.CodeCanceled
			return result, outputs()
		}
		if err := errors.Join(err, outputs(), closeErr); err != nil {
			return nil, err
		}
		if answer.Result == nil {
			return nil, errors.New("skillboxd sent no result")
		}
		answer.Result.Warnings = append(answer.Result.Warnings, unended...)
		return answer.Result, nil
	}
}

// addStdio passes the caller's descriptors on, or files that take the output for the envelope.
func (o *options) addStdio(r *helper.Request, fds *[]int) (*client.Capture, error) {
	stdio := [3]int{0, 1, 2}
	capture := &client.Capture{}
	if o.json {
		c, err := client.NewCapture()
		if err != nil {
			return nil, err
		}
		capture, stdio[1], stdio[2] = &c, int(c.Stdout.Fd()), int(c.Stderr.Fd())
	}
	if o.params != "" {
		// Parameters are the skill's stdin; the caller's is not looked at.
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		stdio[0] = null
	}
	r.Files = append(r.Files, "stdin", "stdout", "stderr")
	*fds = append(*fds, stdio[:]...)
	return capture, nil
}

func checkJSON(text []byte) error {
	var v any
	return json.Unmarshal(text, &v)
}

// receiveOutputs writes the stream of output files while it comes; the returned function waits for its end.
func (o *options) receiveOutputs(r *helper.Request, fds *[]int) (func() error, error) {
	if o.output == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(o.output)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.Files = append(r.Files, "outputs")
	*fds = append(*fds, int(write.Fd()))
	done := make(chan error, 1)
	go func() {
		err := output.Extract(read, dir, o.force)
		// Drain, so that skillboxd is not left writing into a full pipe.
		_, copyErr := io.Copy(io.Discard, read)
		done <- errors.Join(err, copyErr, read.Close(), dir.Close())
	}()
	return func() error { return errors.Join(write.Close(), <-done) }, nil
}

// patience is what skillboxd has to answer a second cancel, which kills the skill at once, before it is killed itself.
const patience = time.Second

// forwardSignals turns Ctrl-C and SIGTERM into a cancel, and a terminal's new size into a message. stop says whether skillboxd had
// to be killed because it did not answer the second cancel.
func (o *options) forwardSignals(p *helper.Peer, r *helper.Request) (stop func() (canceled, killed bool)) {
	restore := o.rawTerminal(r)
	done := make(chan struct{})
	ended := make(chan struct{})
	cancels, killed := 0, false // until ended, the goroutine's
	go func() {
		defer close(ended)
		signals := o.notified()
		var late <-chan time.Time
		for {
			select {
			case <-done:
				return
			case <-late:
				p.Kill()
				killed = true
			case s := <-signals:
				m := helper.Message{Cancel: &helper.Cancel{}}
				if s == syscall.SIGWINCH {
					rows, cols := terminalSize()
					m = helper.Message{Resize: &helper.Resize{Rows: rows, Cols: cols}}
				} else if cancels++; cancels == 2 {
					late = time.After(patience)
				}
				// An error means that the run has ended, which Do reports.
				_ = p.Tell(m)
			}
		}
	}()
	return func() (bool, bool) {
		close(done)
		restore()
		<-ended
		return cancels > 0, killed
	}
}

// notified is where signals come from now on. Each costs a few changes of threads, which a call should not wait for: it is called while the
// request is on its way. One that comes before ends the client, and so the call.
func (o *options) notified() <-chan os.Signal {
	o.signals.Do(func() {
		kinds := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
		if o.tty {
			kinds = append(kinds, syscall.SIGWINCH)
		}
		o.signaled = make(chan os.Signal, 4)
		signal.Notify(o.signaled, kinds...)
	})
	return o.signaled
}

// exitOn lets signals end this program again, when there is no run any more that they could be passed on to.
func exitOn(signals <-chan os.Signal) {
	for s := range signals {
		if number, ok := s.(syscall.Signal); ok && number != syscall.SIGWINCH {
			os.Exit(128 + int(number)) // as the shells count
		}
	}
}
