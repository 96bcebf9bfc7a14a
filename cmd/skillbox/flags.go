package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skillbox/client"
	"skillbox/helper"
)

// options are the flags of exec, plan and the commands of sessions.
type options struct {
	policy, params, output, entry, mode string
	session                             string // whose call this is; "" is nobody's
	inputs, env                         []string
	timeout                             time.Duration
	force, json, tty, trust, oci        bool
	maxFiles                            int
	maxBytes                            int64

	signals  sync.Once // see notified
	signaled chan os.Signal
}

func (o *options) register(c *cobra.Command) {
	o.registerGrant(c)
	o.registerCall(c)
	c.ValidArgsFunction = completeBundle
}

// registerGrant is for what a box depends on, or may ever be told.
func (o *options) registerGrant(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.policy, "policy", "p", "", "`file` with what the skill may have (default: no network, no host files)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "`NAME[=VALUE]` for the skill's environment; without value, the caller's; repeatable")
	f.DurationVarP(&o.timeout, "timeout", "t", 0, "longest `time` the skill may run, such as 10s (default: the policy's, else 30s)")
	f.BoolVar(&o.trust, "trust-bundle-policy", false, "let the bundle's own policy count as the operator's")
	f.IntVar(&o.maxFiles, "max-files", 0, "most `files` that a bundle may have (default 10000)")
	f.Int64Var(&o.maxBytes, "max-bytes", 0, "most `bytes` that a bundle may have (default 512 MiB)")
	completeFlag(c, "policy", yamlFiles)
}

// registerCall is for what one call brings and takes.
func (o *options) registerCall(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.params, "params", "", "parameters: a `JSON` text, @FILE, or - for standard input")
	f.StringArrayVarP(&o.inputs, "input", "i", nil, "`PATH[:NAME]` of a file that the skill finds as /input/NAME; repeatable")
	f.StringVarP(&o.output, "output", "o", "", "`directory` that takes the files left in /output")
	f.BoolVar(&o.force, "force", false, "let --output replace existing files")
	f.StringVar(&o.entry, "entry", "", "`path` of a script in the bundle to run")
	f.BoolVar(&o.json, "json", false, "print one JSON object with the result, output included, instead of passing stdio through")
	f.BoolVar(&o.tty, "tty", false, "give the skill a terminal of its own, connected with this one")
	completeFlag(c, "output", directories)
}

// request opens what the command line names, with the caller's rights, and puts the request together. The files are passed on as
// descriptors and stay open until the process ends.
func (o *options) request(op string, args []string, dash int) (*helper.Request, []int, error) {
	words := []string{}
	if dash >= 0 {
		args, words = args[:dash], args[dash:]
	}
	if op == helper.OpSessionExec {
		args = []string{""} // its box has one
	}
	if len(args) != 1 {
		return nil, nil, &helper.Error{Message: fmt.Sprintf("one bundle directory is needed, got %d", len(args)), Hint: "words for the skill come after --"}
	}
	r := &helper.Request{
		Version: helper.Version, Op: op, Session: o.session, BundleName: args[0], PolicyName: o.policy, Words: words, Entry: o.entry, TimeoutMS: o.timeout.Milliseconds(),
		MaxFiles: o.maxFiles, MaxBytes: o.maxBytes, TrustBundlePolicy: o.trust, Capture: o.json, TTY: o.tty, OCI: o.oci, CacheDir: client.CacheDir(),
	}
	if o.timeout < 0 || (o.timeout > 0 && r.TimeoutMS == 0) {
		return nil, nil, &helper.Error{Message: "--timeout must be at least 1ms"}
	}
	if o.tty && o.json {
		return nil, nil, &helper.Error{Message: "--tty and --json exclude each other"}
	}
	var fds []int
	add := func(role string, fd int) { r.Files, fds = append(r.Files, role), append(fds, fd) }
	if op != helper.OpSessionExec {
		bundle, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, &os.PathError{Op: "open bundle", Path: args[0], Err: err}
		}
		add("bundle", bundle)
	}
	if o.policy != "" {
		fd, err := openRead(o.policy)
		if err != nil {
			return nil, nil, err
		}
		add("policy", fd)
	}
	if err := o.addParams(add); err != nil {
		return nil, nil, err
	}
	for _, input := range o.inputs {
		name, err := addInput(input, add)
		if err != nil {
			return nil, nil, err
		}
		r.Inputs = append(r.Inputs, name)
	}
	r.EnvSet = map[string]string{}
	for _, e := range o.env {
		if name, value, ok := strings.Cut(e, "="); ok {
			r.EnvSet[name] = value
		} else {
			r.EnvPass = append(r.EnvPass, e)
		}
	}
	return r, fds, nil
}

func (o *options) addParams(add func(string, int)) error {
	switch {
	case o.params == "":
		return nil
	case o.params == "-":
		add("params", 0)
		return nil
	case strings.HasPrefix(o.params, "@"):
		fd, err := openRead(o.params[1:])
		if err != nil {
			return err
		}
		add("params", fd)
		return nil
	}
	if err := checkJSON([]byte(o.params)); err != nil {
		return &helper.Error{Message: fmt.Sprintf("--params is not JSON: %v", err), Hint: "a file is given as @FILE"}
	}
	fd, err := unix.MemfdCreate("params", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("params: %w", err)
	}
	if _, err := unix.Pwrite(fd, []byte(o.params), 0); err != nil {
		return fmt.Errorf("params: %w", err)
	}
	add("params", fd)
	return nil
}

// addInput splits PATH[:NAME]; a path with a colon is taken whole if such a file exists.
func addInput(input string, add func(string, int)) (string, error) {
	path, name := input, filepath.Base(input)
	if _, err := os.Lstat(input); err != nil {
		if i := strings.LastIndexByte(input, ':'); i > 0 {
			path, name = input[:i], input[i+1:]
		}
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return "", &helper.Error{Message: fmt.Sprintf("--input %s: %q is not a file name", input, name)}
	}
	fd, err := openRead(path)
	if err != nil {
		return "", err
	}
	add("input", fd)
	return name, nil
}

// openRead returns a bare descriptor: an os.File would close it when nobody holds the File any more.
func openRead(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
