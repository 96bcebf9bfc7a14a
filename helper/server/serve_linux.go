package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/output"
	"skillbox/sandbox"
	"skillbox/wire"
)

// maxResult is the largest JSON value that a skill's result file may hold: it travels in a frame.
const maxResult = 2 << 20

// Options are what the kinds of skillboxd differ in.
type Options struct {
	// Enter is called when the request is there: before, a new user namespace may have no ids yet.
	Enter func() (*sandbox.Host, error)
	// OneShot says that this process ends after one connection: its namespaces then take away what it made, faster than it could.
	OneShot bool
}

// Serve answers one connection.
func Serve(conn *wire.Conn, o Options) (err error) {
	began := time.Now()
	var r helper.Request
	fds, err := conn.Receive(&r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := sort(&r, fds)
	defer f.close()
	if err == nil && r.Version != helper.Version {
		err = refused("the client speaks protocol version %d, this skillboxd %d: install both from one build", r.Version, helper.Version)
	}
	if err == nil && helper.Plain(r.Op) {
		return conn.Send(document(plain(&r, f)))
	}
	var h *sandbox.Host
	if err == nil {
		h, err = o.Enter()
	}
	if err != nil {
		return conn.Send(helper.Reply{Result: failure(err)})
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	entered := sandbox.Since(began)
	switch r.Op {
	case helper.OpExec:
		result, box := exec(conn, h, &r, f)
		result.Phases["enter_ms"] = entered
		result.DurationMS = sandbox.Since(began)
		err := sendResult(conn, result)
		switch {
		case box != nil && o.OneShot:
			err = errors.Join(err, box.Leave())
		case box != nil:
			err = errors.Join(err, box.Close())
		}
		return err
	case helper.OpPlan:
		return conn.Send(document(explain(h, &r, f)))
	}
	return conn.Send(helper.Reply{Result: failure(refused("unknown operation %q", r.Op))})
}

// sendResult answers with what a run came to. Each part of it is bounded; should the whole be too long for a frame all the same, the
// parts that the skill can make long are left out: they must not cost the caller the result.
func sendResult(conn *wire.Conn, result *helper.Result) error {
	err := conn.Send(helper.Reply{Result: result})
	if !errors.Is(err, wire.ErrProtocol) {
		return err
	}
	result.Result, result.Outputs, result.Denials = nil, nil, nil
	result.Warnings = []string{"the result was too large for one message: the skill's JSON, the list of its output files, denials and other warnings were left out"}
	result.Normalize()
	return conn.Send(helper.Reply{Result: result})
}

// exec runs one call. Whatever goes wrong becomes the envelope. The box, if there is one, has ended and is to be closed.
func exec(conn *wire.Conn, h *sandbox.Host, r *helper.Request, f *files) (*helper.Result, *sandbox.Box) {
	id, err := h.Reserve()
	if err != nil {
		return identified(failure(err), id, nil, nil), nil
	}
	link := listen(conn)
	digesting := digest(r, f)
	d, err := decideUnless(link.over, h, r, f)
	if err != nil {
		return identified(failure(err), id, d, nil), nil
	}
	if err := conn.Send(helper.Reply{Granted: &helper.Granted{Env: d.plan.Pass, Secrets: d.plan.Secrets}}); err != nil {
		return identified(failure(err), id, d, nil), nil
	}
	box, err := inTime(func() (*sandbox.Box, error) { return sandbox.Prepare(h, d.plan, id) })
	if err != nil {
		return identified(failure(err), id, d, nil), nil
	}
	result, tree := run(box, d, r, f, link, digesting)
	return identified(result, id, d, tree), box
}

// decideUnless is decide, which reads from the caller: a policy may be a FIFO that nobody writes.
func decideUnless(over <-chan struct{}, h *sandbox.Host, r *helper.Request, f *files) (*decision, error) {
	type answer struct {
		d   *decision
		err error
	}
	done := make(chan answer, 1)
	go func() {
		d, err := decide(h, r, f)
		done <- answer{d, err}
	}()
	select {
	case a := <-done:
		return a.d, a.err
	case <-over:
		return nil, errCanceled
	}
}

// prepareTime bounds everything that happens before the skill's own time-out begins to count.
const prepareTime = 30 * time.Second

// inTime gives up on a step that hangs: a bundle or a bind may lie on a file system that never answers. What hangs ends with
// this process; a system call that waits for a dead server cannot be ended otherwise.
func inTime[T any](step func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := step()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(prepareTime):
		var none T
		return none, refused("the sandbox was not ready within %v: does the bundle or a bind lie on a file system that hangs?", prepareTime)
	}
}

type digested struct {
	tree *bundle.Tree
	err  error
	ms   float64
}

// digest starts walking the bundle beside everything else. It ends when the request's descriptors close at the latest.
func digest(r *helper.Request, f *files) <-chan digested {
	done := make(chan digested, 1)
	began := time.Now()
	go func() {
		limits := bundle.Limits{Files: r.MaxFiles, Bytes: r.MaxBytes}
		tree, err := bundle.Digest(context.Background(), f.bundle, limits, bundle.OpenCache(r.CacheDir))
		done <- digested{tree, err, sandbox.Since(began)}
	}()
	return done
}

// run waits for what the call needs, and runs it.
func run(box *sandbox.Box, d *decision, r *helper.Request, f *files, link *link, digesting <-chan digested) (*helper.Result, *bundle.Tree) {
	var checked digested
	select {
	case checked = <-digesting:
	case <-time.After(d.plan.Limits.Timeout):
		return failure(refused("the bundle could not be read within %v (timeout)", d.plan.Limits.Timeout)), nil
	case <-link.over:
		return failure(errCanceled), nil
	}
	if checked.err != nil {
		return failure(checked.err), nil
	}
	box.Phases["digest_ms"] = checked.ms
	call, err := link.call(d, r, f)
	if err != nil {
		return failure(err), checked.tree
	}
	result, err := box.Run(call)
	if err != nil {
		return failure(err), checked.tree
	}
	takeResult(box, result)
	takeOutputs(box, d, f, result)
	return result, checked.tree
}

// takeResult puts the skill's result file into the envelope; one that is not JSON is a warning, for the skill is not our failure.
func takeResult(box *sandbox.Box, result *helper.Result) {
	data, err := box.ReadResult(maxResult)
	// Package json takes any bytes inside a string; a caller's parser of the envelope would not.
	if err == nil && len(data) > 0 && !(json.Valid(data) && utf8.Valid(data)) {
		err = errors.New("the result file does not hold one JSON value")
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
		return
	}
	if len(data) == 0 {
		return
	}
	result.Result = data
}

// takeOutputs streams /output to the client, if it asked for it.
func takeOutputs(box *sandbox.Box, d *decision, f *files, result *helper.Result) {
	if f.outputs == nil {
		return
	}
	items, skipped, err := output.Collect(box.Outputs(), f.outputs, output.Limits{Files: d.plan.Limits.FilesCount, Bytes: d.plan.Limits.FilesBytes})
	for _, item := range items {
		result.Outputs = append(result.Outputs, helper.Output{Name: item.Name, Bytes: item.Bytes, SHA256: item.SHA256})
	}
	for _, s := range skipped {
		result.Warnings = append(result.Warnings, s.String())
	}
	if err != nil {
		result.Warnings = append(result.Warnings, err.Error())
	}
	if err := f.outputs.Close(); err != nil {
		result.Warnings = append(result.Warnings, fmt.Sprintf("outputs: %v", err))
	}
}

// identified fills in who ran under what.
func identified(result *helper.Result, id string, d *decision, tree *bundle.Tree) *helper.Result {
	result.Normalize()
	result.ID = id
	if d == nil {
		return result
	}
	if d.plan != nil {
		for _, w := range d.plan.Warnings {
			if !slices.Contains(result.Warnings, w) {
				result.Warnings = append(result.Warnings, w)
			}
		}
		result.Sandbox = helper.Sandbox{Mode: d.plan.Mode, Layers: d.plan.Layers}
	}
	result.Policy = d.policy
	if d.bundle != nil {
		result.Skill.Name = d.bundle.Name
	}
	if tree != nil {
		result.Skill.Digest = tree.Digest
	}
	return result
}
