package suite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"skillbox/policy"
)

// opened are the files of one case. They are named by their descriptors: a path could be another file's by the time it is opened again.
type opened struct {
	all  []*os.File
	dirs []string // made for the case
}

func (o *opened) close() {
	for _, f := range o.all {
		f.Close()
	}
	for _, dir := range o.dirs {
		os.RemoveAll(dir)
	}
}

// directory is an empty one, which goes with the case.
func (o *opened) directory() (string, error) {
	dir, err := os.MkdirTemp("", "skillbox-test-")
	if err != nil {
		return "", fmt.Errorf("suite: %w", err)
	}
	o.dirs = append(o.dirs, dir)
	return dir, nil
}

// open opens a regular file below dir; no link leads out of there.
func (o *opened) open(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is no regular file", name), err, f.Close())
	}
	o.all = append(o.all, f)
	return f, nil
}

// below names a file that open opens.
func (o *opened) below(dir, name string) (string, error) {
	f, err := o.open(dir, name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), nil
}

// text is a file without a name.
func (o *opened) text(name, content string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("suite: %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	o.all = append(o.all, f)
	_, err = f.WriteAt([]byte(content), 0)
	return f, err
}

// policy is the file with the policy under which a case runs, and its name in messages; "" is the defaults.
func (o *Options) policy(c *Case, files *opened, out *Outcome) (path, name string, err error) {
	if c.Policy.Kind == 0 {
		return o.Policy, o.policyName, nil
	}
	name, text, err := c.asked(files)
	if err == nil && !c.callers {
		text, err = o.narrowed(name, text, out)
	}
	if err != nil {
		return "", "", err
	}
	f, err := files.text("policy", string(text))
	if err != nil {
		return "", "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), name, nil
}

// asked is the policy that the test file names or holds.
func (c *Case) asked(files *opened) (name string, text []byte, err error) {
	at := filepath.Join(c.dir, TestFile)
	if c.Policy.Kind == yaml.MappingNode {
		name = fmt.Sprintf("the policy of case %q in %s", c.Name, at)
		text, err = yaml.Dump(versioned(&c.Policy))
		return name, text, err
	}
	if c.Policy.Kind != yaml.ScalarNode || strings.TrimSpace(c.Policy.Value) == "" {
		return "", nil, fmt.Errorf("%s:%d: policy: must be the path of one, or a policy", at, c.Policy.Line)
	}
	f, err := files.open(c.dir, c.Policy.Value)
	if err != nil {
		return "", nil, fmt.Errorf("policy: %w", err)
	}
	if text, err = io.ReadAll(io.LimitReader(f, maxFile+1)); len(text) > maxFile {
		err = fmt.Errorf("policy: %s is larger than 1 MiB", c.Policy.Value)
	}
	return filepath.Join(c.dir, c.Policy.Value), text, err
}

// versioned is a policy with the version of the format, which it may leave out within a test file.
func versioned(n *yaml.Node) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "version" {
			return n
		}
	}
	whole := *n
	scalar := func(tag, value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value} }
	whole.Content = append([]*yaml.Node{scalar("!!str", "version"), scalar("!!int", "1")}, n.Content...)
	return &whole
}

// parsed is the policy in a file, or the defaults where there is none.
func parsed(path, name string) (*policy.Policy, error) {
	if path == "" {
		return policy.Default(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return policy.Parse(name, text)
}

// narrowed is what a test file asks for within what the caller allows, as with a policy that a bundle declares.
func (o *Options) narrowed(name string, text []byte, out *Outcome) ([]byte, error) {
	asked, err := policy.Parse(name, text)
	if err != nil {
		return nil, err
	}
	operator, err := parsed(o.Policy, o.policyName)
	if err != nil {
		return nil, err
	}
	granted, err := policy.Grant(nil, operator, asked)
	if err != nil {
		return nil, err
	}
	for _, note := range granted.Requested {
		out.Warnings = append(out.Warnings, note.String()+" (the test file asks for it: --trust-cases or --trust-bundle-policy)")
	}
	return granted.Policy.Stated(), nil
}
