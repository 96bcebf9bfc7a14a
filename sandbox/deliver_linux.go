package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/rootfs"
)

// delivered waits for deliver; a cancel or the time-out, noted in end, come first where the caller's parameters never end.
func (b *Box) delivered(call Call, end *ending) (int, error) {
	if call.Params == nil {
		return b.deliver(call)
	}
	type answer struct {
		params int
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		params, err := b.deliver(call)
		done <- answer{params, err}
	}()
	select {
	case a := <-done:
		return a.params, a.err
	case <-call.Cancel:
		end.set(helper.Canceled, "canceled by the caller before the skill was started")
	case <-time.After(call.Timeout):
		end.set(helper.TimedOut, "the parameters did not end within %v (timeout)", call.Timeout)
	}
	return -1, nil
}

// deliver writes what the call brings into the box. It returns a descriptor of the parameters, or -1.
func (b *Box) deliver(call Call) (int, error) {
	owner := b.Plan.Tree.Owner
	for _, in := range call.Inputs {
		if err := b.tree.PutInput(in.Name, in.Content, owner); err != nil {
			return -1, err
		}
	}
	for name, value := range call.Secrets {
		if err := b.tree.PutSecret(name, value, owner); err != nil {
			return -1, err
		}
	}
	if call.Params == nil {
		return -1, nil
	}
	if err := b.tree.PutParams(call.Params, owner); err != nil {
		return -1, err
	}
	fd, err := b.tree.Params()
	if err != nil {
		return -1, err
	}
	if err := oneJSONValue(fd); err != nil {
		unix.Close(fd)
		return -1, &helper.Error{Message: fmt.Sprintf("the parameters are not JSON: %v", err), Hint: "other input goes to the skill's standard input, or to --input"}
	}
	return fd, nil
}

// oneJSONValue reads a file from its start without moving its offset. The parameters may be large: no more than one of their
// strings is in memory at a time.
func oneJSONValue(fd int) error {
	file := io.NewSectionReader(preader(fd), 0, math.MaxInt64)
	tokens := json.NewDecoder(file)
	for depth := 0; ; {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nothingMore(tokens)
		}
	}
}

func nothingMore(tokens *json.Decoder) error {
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the first value")
	}
	return nil
}

// preader is a descriptor that is read by position.
type preader int

func (p preader) ReadAt(buffer []byte, at int64) (int, error) {
	n, err := unix.Pread(int(p), buffer, at)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// environment is all that the skill gets: fixed names, the policy's values, and the caller's values that the policy passes.
func (b *Box) environment(call Call) []string {
	values := map[string]string{
		"PATH":                 "/usr/local/bin:/usr/bin:/bin:" + rootfs.ProgramDir,
		"HOME":                 rootfs.HomeDir,
		"LANG":                 "C.UTF-8",
		"TZ":                   "UTC",
		"TMPDIR":               "/tmp",
		"SKILLBOX_RESULT_FILE": rootfs.ResultFile,
	}
	if g := b.Plan.Tree.GPU; g != nil && len(g.Libraries) > 0 && b.Plan.Tree.Base != "host" {
		values["LD_LIBRARY_PATH"] = rootfs.LibraryDir
	}
	if call.Params != nil {
		values["SKILLBOX_PARAMS_FILE"] = rootfs.ParamsFile
	}
	if call.TTY && call.Term != "" {
		values["TERM"] = call.Term
	}
	for name, value := range b.Plan.Env {
		values[name] = value
	}
	for _, name := range b.Plan.Pass {
		if value, ok := call.Env[name]; ok {
			values[name] = value
		}
	}
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	return env
}
