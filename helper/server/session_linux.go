package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/sandbox"
)

// errNoService answers for a skillboxd that ends with its connection.
var errNoService = &helper.Error{Message: "only a service holds sessions", Hint: "use --mode user"}

// startSession prepares a box, or takes a ready one, and answers with its session.
func (c *connection) startSession() error {
	started, one, err := c.beginSession()
	if err != nil {
		return c.conn.Send(helper.Reply{Result: failure(err)})
	}
	document, err := json.Marshal(started)
	if err == nil {
		err = c.conn.Send(helper.Reply{Plan: document})
	}
	if c.after != nil {
		c.after()
	}
	if err != nil { // nobody knows of it
		one.run.End(helper.Canceled, "whoever started the session did not wait for it")
	}
	return err
}

func (c *connection) beginSession() (_ *helper.SessionStarted, _ *session, err error) {
	if c.held == nil {
		return nil, nil, errNoService
	}
	idle, total, err := c.request.SessionTimes()
	if err != nil {
		return nil, nil, err
	}
	if err := c.held.reserve(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			c.held.cancel()
		}
	}()
	c.link = listen(c.conn)
	if err := c.settle(); err != nil {
		return nil, nil, err
	}
	digesting, phases := c.digest(), map[string]float64{}
	d, err := unless(c.link.over, func() (*decision, error) { return c.decide(digesting, phases) })
	if err != nil {
		return nil, nil, err
	}
	if err := c.meant(d, digesting, phases); err != nil {
		return nil, nil, err
	}
	if c.ports, err = publish(c.request, c.files, d); err != nil {
		return nil, nil, err
	}
	release, err := c.quota.admit(d.granted.Policy.Resources)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	key, err := d.key()
	if err != nil {
		return nil, nil, err
	}
	box, tree, found, err := c.obtain(key, d, digesting, phases)
	one := &session{box: box, d: d, tree: tree, idle: idle, since: time.Now(), limits: bundle.Limits{Files: c.request.MaxFiles, Bytes: c.request.MaxBytes}, cache: c.request.CacheDir}
	if err == nil {
		one.dir, err = again(c.files.bundle)
	}
	if err == nil {
		one.run, err = box.Stay()
	}
	if err == nil {
		err = box.Publish(c.ports.listeners)
	}
	if err == nil {
		one.ports, err = c.ports.held()
	}
	if err != nil {
		err = errors.Join(err, c.ports.retract())
		if box != nil {
			err = errors.Join(err, box.Close())
		}
		if one.dir != nil {
			err = errors.Join(err, one.dir.Close())
		}
		return nil, nil, err
	}
	c.after = func() {
		if !c.leaveCopy(tree) {
			return
		}
		c.before.keep(c.spoken, d, tree.Digest, c.began)
		c.pool.served(kind{key: key, skill: d.bundle.Name, policy: d.policy.Name, from: d.from(), plan: d.plan, least: int(d.granted.Policy.Warm.Ready)}, tree, found)
	}
	one.id, one.ends = box.ID, one.since.Add(total)
	c.held.add(one)
	go func() {
		<-one.over
		release()
	}()
	return &helper.SessionStarted{
		Session: one.id, Skill: helper.Named{Name: d.bundle.Name, Digest: tree.Digest}, Policy: d.policy, Sandbox: helper.Sandbox{Mode: d.plan.Mode, Layers: d.plan.Layers, Image: d.plan.ImageDigest(), Start: box.Start},
		IdleMS: idle.Milliseconds(), Ends: one.ends.UTC(), Published: c.ports.told, Warnings: append([]string{}, d.plan.Warnings...),
	}, one, nil
}

// again opens a directory anew, for somebody who keeps it for longer.
func again(dir *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w", dir.Name(), err)
	}
	return os.NewFile(uintptr(fd), dir.Name()), nil
}

// execInSession runs one call of a session. Whatever goes wrong becomes the envelope.
func (c *connection) execInSession() *helper.Result {
	id := sandbox.NewID()
	if c.held == nil {
		return identified(failure(errNoService), id, nil, nil)
	}
	one, call, err := c.held.take(c.request.Session)
	if err != nil {
		return identified(failure(err), id, nil, nil)
	}
	defer c.held.release(one) // before the answer: who has it may ask again at once
	c.link = listen(c.conn)
	looking := one.look()
	result := c.serveIn(one, id, call)
	result = identified(result, id, one.d, one.tree)
	result.Session, result.Call = one.id, call
	if warning := looking(); warning != "" {
		result.Warnings = append(result.Warnings, warning)
	}
	return result
}

// serveIn brings the call to the session's box.
func (c *connection) serveIn(one *session, id string, n int) *helper.Result {
	d := *one.d
	if err := one.allows(c.request); err != nil {
		return failure(err)
	}
	var err error
	if d.argv, d.dir, err = command(c.request, d.granted.Policy, d.bundle, d.sources.Image); err != nil {
		return failure(err)
	}
	if c.request.Entry != "" {
		d.params = nil // they are another program's
	}
	if err := c.checkParams(&d); err != nil {
		return failure(err)
	}
	if d.asks() {
		if err := c.conn.Send(helper.Reply{Granted: &helper.Granted{Env: d.plan.Pass, Secrets: d.plan.Secrets}}); err != nil {
			return failure(err)
		}
	}
	call, err := c.link.call(&d, c.request, c.files)
	if err != nil {
		return failure(err)
	}
	c.trail.session, c.trail.call = one.id, n
	if err := c.trail.granted(id, &d, one.tree); err != nil {
		return failure(err)
	}
	call.Timeout = time.Duration(c.request.TimeoutMS) * time.Millisecond
	for name, value := range c.request.EnvSet {
		if call.Env == nil {
			call.Env = map[string]string{}
		}
		call.Env[name] = value
	}
	c.calls.begin(id, nil, &d, c.link.kill)
	call.Record = c.trail.recorder(one.box)
	result, err := one.run.Call(call)
	if err != nil {
		result = failure(err)
	} else {
		takeResult(one.box, result)
		takeOutputs(one.box, &d, c.files, result)
	}
	c.calls.end(id)
	return result
}

// allows refuses what a call asks for beyond what its session was granted.
func (one *session) allows(r *helper.Request) error {
	granted := one.d.plan
	if most := granted.Limits.Timeout; time.Duration(r.TimeoutMS)*time.Millisecond > most {
		return &helper.Error{Message: fmt.Sprintf("--timeout is longer than the session's %v", most), Hint: "start a session with that --timeout"}
	}
	names := slices.Clone(r.EnvPass)
	for name := range r.EnvSet {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(granted.Pass, name) {
			return &helper.Error{Message: fmt.Sprintf("--env %s: the session was not granted it", name), Hint: "what may be passed is said when it starts: skillbox session start --env " + name}
		}
	}
	return nil
}

// look reads the bundle beside the call; the returned function waits for what to warn of, or "".
func (one *session) look() func() string {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan digested, 1)
	go func() {
		dir, err := again(one.dir)
		if err != nil {
			done <- digested{err: err}
			return
		}
		defer dir.Close()
		tree, err := bundle.Digest(ctx, dir, one.limits, bundle.OpenCache(one.cache))
		done <- digested{tree: tree, err: err}
	}()
	return func() string {
		defer cancel()
		select {
		case now := <-done:
			switch {
			case now.err != nil:
				return fmt.Sprintf("the bundle could not be read again, it may have changed since the session began: %v", now.err)
			case now.tree.Digest != one.tree.Digest:
				return fmt.Sprintf("the bundle has changed since the session began and is now %s: what the call saw of it is uncertain", now.tree.Digest)
			}
			return ""
		case <-time.After(digestTime):
			return fmt.Sprintf("the bundle could not be read again within %v, it may have changed since the session began", digestTime)
		}
	}
}

// stopSession answers with what a session came to.
func (s *Service) stopSession(id string) (json.RawMessage, error) {
	one, err := s.held.end(id, "it was stopped")
	if err != nil {
		return nil, err
	}
	select {
	case <-one.over:
	case <-time.After(closeTime):
		return nil, &helper.Error{Message: fmt.Sprintf("session %s was not gone within %v", id, closeTime), Hint: "the client of its call may not read: `skillbox ps`"}
	}
	rest := one.final
	return json.Marshal(helper.SessionStopped{Session: id, Calls: one.calls, Denials: rest.Denials, Network: append([]helper.Flow{}, rest.Network...), Warnings: rest.Warnings})
}

// kill ends calls and sessions by their ids. What is not known is refused before anything is ended.
func (s *Service) kill(ids []string) (json.RawMessage, error) {
	var sessions, calls []string
	for _, id := range ids {
		if s.held.has(id) {
			sessions = append(sessions, id)
		} else {
			calls = append(calls, id)
		}
	}
	if _, err := s.calls.kill(calls); err != nil {
		return nil, err
	}
	for _, id := range sessions {
		// One that ended meanwhile has.
		_, _ = s.held.end(id, "it was killed")
	}
	var text string
	for _, id := range ids {
		text += id + "\n"
	}
	return json.Marshal(helper.Text{Text: text})
}
