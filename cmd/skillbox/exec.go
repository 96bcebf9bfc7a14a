package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

func execCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "exec [flags] BUNDLE [-- WORD…]",
		Short: "Run a skill",
		Long: `Run the skill in BUNDLE. Where the policy or the bundle names a command, the words after -- are
appended to it; otherwise they are the command. The skill finds its parameters on standard
input and in the file named by SKILLBOX_PARAMS_FILE, and runs with /skill (the bundle) as its
working directory, or with --workdir.

The system service runs the skill where the administrator has installed it (--mode system); else
a helper of your own (--mode user), which the first call starts: it keeps sandboxes ready, each
for one call, and leaves after SKILLBOX_IDLE (10m) without calls. SKILLBOX_NO_DAEMON=1 forbids
to start one: then, or with --mode oneshot, a helper runs this call alone.

Exit code: the skill's own; 124 timed out; 125 skillbox refused or failed; 126 not executable;
127 not found; 128+n killed by signal n; 137 out of memory; 130 canceled; 153 output limit;
159 killed by the system-call filter. With --json the verdict says which it was.`,
		Example: `  skillbox exec --params '{"text":"a b a"}' examples/word-count
  skillbox exec --json --policy policy.yaml --input report.pdf --output out/ examples/pdf-text
  skillbox exec bundle/ -- python3 scripts/x.py --help
  skillbox exec --manifest .skill-engine.toml ffmpeg -- -i in.mp4 out.webm`,
		RunE: func(c *cobra.Command, args []string) error { return o.exec(args, c.ArgsLenAtDash()) },
	}
	o.register(c)
	o.ports.register(c)
	c.Flags().StringVar(&o.mode, "mode", "auto", "`who` runs it: system, the service of this machine; user, one of your own that keeps boxes ready; oneshot, a helper for this call alone; auto is the first that there is")
	completeFlag(c, "mode", modes)
	c.Flags().StringVar(&o.format, "format", "", "print one JSON object as another system does: `skill-engine`, with success, stdout, stderr and exit_code")
	completeFlag(c, "format", skillEngine)
	return c
}

// exec runs the skill and passes its exit code on. With --json every outcome is one envelope on stdout.
func (o *options) exec(args []string, dash int) error {
	result, err := o.runSkill(args, dash)
	if err == nil && result.Error != nil && result.Error.Import != "" { // an image that the policy names and the store has not yet
		if err = client.ImportImage(context.Background(), result.Error.Import); err == nil {
			result, err = o.runSkill(args, dash)
		}
	}
	err = errors.Join(err, o.finish())
	if err != nil {
		e := plainly(err)
		if !o.captures() {
			return e
		}
		result = helper.Failure(helper.Failed, e)
	}
	result.Warnings = append(append([]string{}, o.warnings...), result.Warnings...)
	switch {
	case o.format != "":
		err = asSkillEngine(result)
	case o.json:
		err = printJSON(result)
	case result.Error != nil:
		cli.Complain(result.Error)
	}
	if err != nil {
		return err
	}
	if !o.json {
		warn(result.Warnings)
	}
	return cli.Exit(result.ExitCode)
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
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // it is not for a web page, and < would become six bytes
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := os.Stdout.Write(cli.InertJSON(b.Bytes()))
	return err
}

// runSkill sends the request and gathers what belongs in the envelope.
func (o *options) runSkill(args []string, dash int) (_ *helper.Result, err error) {
	op := helper.OpExec
	if o.session != "" {
		op = helper.OpSessionExec
	}
	r, fds, err := o.request(op, args, dash)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.ports.close()) }()
	if err := o.ports.open(); err != nil {
		return nil, err
	}
	fds = o.ports.add(r, fds)
	took := time.Now()
	process, err := o.connect(r)
	if err != nil {
		return nil, err
	}
	capture, display, err := o.addStdio(r, &fds)
	if err != nil {
		return nil, errors.Join(err, process.Close())
	}
	outputs, err := o.receiveOutputs(r, &fds)
	if err != nil {
		return nil, errors.Join(err, process.Close(), display())
	}
	result, err := o.ask(process, r, fds, outputs)
	err = errors.Join(err, display())
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
		answer, err := process.Do(r, fds, o.lookup)
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

// addStdio passes the caller's descriptors on, or files that take the output for the envelope, or pipes to a terminal. The returned function
// waits for what comes by these.
func (o *options) addStdio(r *helper.Request, fds *[]int) (*client.Capture, func() error, error) {
	stdio := [3]int{0, 1, 2}
	capture, display := &client.Capture{}, func() error { return nil }
	if o.captures() {
		c, err := client.NewCapture()
		if err != nil {
			return nil, nil, err
		}
		capture, stdio[1], stdio[2] = &c, int(c.Stdout.Fd()), int(c.Stderr.Fd())
	} else if !o.tty && !o.raw {
		stdout, stderr, wait, err := (&cli.Screen{}).Stdio()
		if err != nil {
			return nil, nil, err
		}
		stdio[1], stdio[2], display = int(stdout.Fd()), int(stderr.Fd()), wait
	}
	if o.params != "" {
		// Parameters are the skill's stdin; the caller's is not looked at.
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("open %s: %w", os.DevNull, err), display())
		}
		stdio[0] = null
	}
	r.Files = append(r.Files, "stdin", "stdout", "stderr")
	*fds = append(*fds, stdio[:]...)
	return capture, display, nil
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
	write, wait, err := client.Outputs(o.output, o.force)
	if err != nil {
		return nil, err
	}
	r.Files = append(r.Files, "outputs")
	*fds = append(*fds, int(write.Fd()))
	return wait, nil
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
