package main

import (
	"errors"
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
	mountAt                                      string // where the bundle appears besides /skill
	policy, params, output, entry, workdir, mode string
	requireDigest, signature                     string
	remoteCode                                   bool
	session                                      string // whose call this is; "" is nobody's
	inputs, env                                  []string
	timeout                                      time.Duration
	manifest, format                             string
	force, json, tty, raw, trust, oci            bool
	maxFiles                                     int
	maxBytes                                     int64
	ports                                        publishing

	mapPaths bool

	values   map[string]string // of variables that a manifest sets
	warnings []string          // of a manifest
	done     []func() error    // what is to be done when the call is over

	signals  sync.Once // see notified
	signaled chan os.Signal
}

func (o *options) register(c *cobra.Command) {
	o.registerGrant(c)
	o.registerCall(c)
	c.Flags().StringVar(&o.manifest, "manifest", "", "`file` of skill-engine (.skill-engine.toml) that says how to run SKILL or SKILL@INSTANCE, which is named in place of a bundle")
	completeFlag(c, "manifest", tomlFiles)
	c.ValidArgsFunction = completeBundle
}

// registerGrant is for what a box depends on, or may ever be told.
func (o *options) registerGrant(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.policy, "policy", "p", "", "`file` with what the skill may have (default: no network, no host files)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "`NAME[=VALUE]` for the skill's environment; without value, the caller's; repeatable")
	f.DurationVarP(&o.timeout, "timeout", "t", 0, "longest `time` the skill may run, such as 10s (default: the policy's, else 30s)")
	f.StringVar(&o.mountAt, "mount-at", "", "`path` in the box where the bundle appears besides /skill, for skills that name their own")
	f.BoolVar(&o.trust, "trust-bundle-policy", false, "let the bundle's own policy count as the operator's")
	f.StringVar(&o.requireDigest, "require-digest", "", "`digest` that the bundle must have, as `skillbox bundle digest` prints it")
	f.StringVar(&o.signature, "signature", "", "`file` with the bundle's signature (default: BUNDLE.skillbox.minisig beside it, if there is one)")
	f.BoolVar(&o.remoteCode, "trust-remote-code", false, "let a bundle that this host does not trust have more than the floor, as far as the host's ceiling goes")
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
	f.BoolVar(&o.mapPaths, "map-paths", false, "in the parameters, name files of --input and below the --output directory as the skill finds them")
	f.BoolVar(&o.force, "force", false, "let --output replace existing files")
	f.StringVar(&o.entry, "entry", "", "`path` of a script in the bundle to run")
	f.StringVarP(&o.workdir, "workdir", "w", "", "absolute `path` in the sandbox where the skill starts (default /skill, the bundle)")
	f.BoolVar(&o.json, "json", false, "print one JSON object with the result, output included, instead of passing stdio through")
	f.BoolVar(&o.tty, "tty", false, "give the skill a terminal of its own, connected with this one")
	f.BoolVar(&o.raw, "raw", false, "let a terminal obey what the skill prints, instead of showing its escape sequences")
	completeFlag(c, "output", directories)
}

// captures says that output is for one object in the end.
func (o *options) captures() bool { return o.json || o.format != "" }

// finish takes away what was made for a call.
func (o *options) finish() error {
	var errs []error
	for _, done := range o.done {
		errs = append(errs, done())
	}
	o.done = nil
	return errors.Join(errs...)
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
		Version: helper.Version, Op: op, Session: o.session, BundleName: args[0], PolicyName: o.policy, Words: words, Entry: o.entry, MountAt: o.mountAt, WorkDir: o.workdir, TimeoutMS: o.timeout.Milliseconds(),
		MaxFiles: o.maxFiles, MaxBytes: o.maxBytes, RequireDigest: o.requireDigest, TrustRemoteCode: o.remoteCode, TrustBundlePolicy: o.trust, Capture: o.captures(), TTY: o.tty, OCI: o.oci, CacheDir: client.CacheDir(), ImageDir: client.ImageDir(),
		AuditDir: client.AuditDir(), AuditConfig: client.AuditConfig(), Asker: client.Parent(),
	}
	if o.timeout < 0 || (o.timeout > 0 && r.TimeoutMS == 0) {
		return nil, nil, &helper.Error{Message: "--timeout must be at least 1ms"}
	}
	if o.tty && o.captures() {
		return nil, nil, &helper.Error{Message: "--tty and --json exclude each other"}
	}
	if o.format != "" && (o.format != "skill-engine" || o.json) {
		return nil, nil, &helper.Error{Message: fmt.Sprintf("--format %s is not known, or --json is there too", o.format), Hint: "the one format is skill-engine"}
	}
	if o.manifest != "" {
		bundle, done, err := o.fromManifest(r, args[0])
		o.done = append(o.done, done)
		if err != nil {
			return nil, nil, err
		}
		args = []string{bundle}
	}
	var fds []int
	add := func(role string, fd int) { r.Files, fds = append(r.Files, role), append(fds, fd) }
	if op != helper.OpSessionExec {
		bundle, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, &os.PathError{Op: "open bundle", Path: args[0], Err: err}
		}
		add("bundle", bundle)
		if err := o.addSignature(args[0], add); err != nil {
			return nil, nil, err
		}
	}
	if o.policy != "" {
		r.Ways = append(r.Ways, helper.WayTo(o.policy)...)
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

// addSignature passes on what says who answers for the bundle, if anything does.
func (o *options) addSignature(bundle string, add func(string, int)) error {
	if o.requireDigest != "" && !isDigest(o.requireDigest) {
		return &helper.Error{Message: fmt.Sprintf("--require-digest %s is no digest", o.requireDigest), Hint: "`skillbox bundle digest` prints it: sha256: and 64 hexadecimal digits"}
	}
	find, of := client.FindSignature, bundle
	if o.signature != "" {
		find, of = client.OpenSignature, o.signature
	}
	f, err := find(of)
	if err != nil || f == nil {
		return err
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // it stays open until the process ends
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	add("signature", fd)
	return f.Close()
}

func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

func (o *options) addParams(add func(string, int)) error {
	if o.mapPaths {
		return o.addMappedParams(add)
	}
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
	return addText([]byte(o.params), add)
}

func addText(params []byte, add func(string, int)) error {
	fd, err := unix.MemfdCreate("params", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("params: %w", err)
	}
	for at := 0; at < len(params); {
		n, err := unix.Pwrite(fd, params[at:], int64(at))
		if err != nil {
			return fmt.Errorf("params: %w", err)
		}
		at += n
	}
	add("params", fd)
	return nil
}

// splitInput splits PATH[:NAME]; a path with a colon is taken whole if such a file exists.
func splitInput(input string) (path, name string) {
	path, name = input, filepath.Base(input)
	if _, err := os.Lstat(input); err != nil {
		if i := strings.LastIndexByte(input, ':'); i > 0 {
			path, name = input[:i], input[i+1:]
		}
	}
	return path, name
}

func addInput(input string, add func(string, int)) (string, error) {
	path, name := splitInput(input)
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
