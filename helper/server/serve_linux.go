package server

import (
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/sandbox"
	"skillbox/wire"
)

// Options are what the kinds of skillboxd differ in.
type Options struct {
	// Enter is called when the request is there: before, a new user namespace may have no ids yet.
	Enter func() (*sandbox.Host, error)
	// OneShot says that this process ends after one connection: its namespaces then take away what it made, faster than it could.
	OneShot bool
	// Audit is where calls are recorded.
	Audit *Audit
}

// Serve answers one connection, which a process of its own was started for.
func Serve(conn *wire.Conn, o Options) (err error) {
	c := &connection{conn: conn, request: &helper.Request{}, began: time.Now(), oneShot: o.OneShot}
	fds, err := conn.Receive(c.request)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	c.files, err = sort(c.request, fds)
	defer c.files.close()
	if v := c.request.Version; err == nil && v != helper.Version {
		err = refused("the client speaks protocol version %d, this skillboxd %d: install both from one build", v, helper.Version)
	}
	if err == nil && helper.Plain(c.request.Op) {
		return c.answer()
	}
	if err == nil {
		c.host, err = o.Enter()
	}
	if err != nil {
		return conn.Send(helper.Reply{Result: failure(err)})
	}
	defer func() { err = errors.Join(err, c.host.Close()) }()
	c.entered = sandbox.Since(c.began)
	c.trail = c.recordIn("oneshot", o.Audit.of(c.request, c.host.Caller()))
	return c.answer()
}

// connection is one client with its request.
type connection struct {
	conn     *wire.Conn
	request  *helper.Request
	files    *files
	host     *sandbox.Host // nil for plain operations
	pool     *pool         // nil where no boxes are kept ready
	calls    *calls        // of the service; nil with pool
	before   *decisions    // likewise
	held     *sessions     // likewise
	spoken   [sha256.Size]byte
	said     *said        // once settled
	pinned   *pinned      // this call's copy of the bundle, where it has to stay what it is
	copied   *copied      // the service's copy, instead
	copyDir  *os.File     // its directory, for this call
	looked   float64      // what it took to find out that copied is the bundle, in milliseconds
	original place        // what pinned or copied is a copy of
	ports    *published   // once decided
	tree     *bundle.Tree // once digested
	record   *record      // of the service; nil with pool
	trail    *trail       // nil where nothing runs
	stopped  stopped
	quota    *quota   // nil is none
	groups   []uint32 // that the caller was in when it connected, where somebody has looked
	link     *link    // nil before exec
	oneShot  bool
	after    func() // once the answer is sent
	endWalk  func() // waits for the end of digest; nil before it begins
	began    time.Time
	entered  float64 // what it took to enter namespaces of our own, in milliseconds
}

// answer does what was asked.
func (c *connection) answer() error {
	switch r := c.request; {
	case helper.Plain(r.Op):
		return c.conn.Send(document(plain(r, c.files)))
	case r.Op == helper.OpExec:
		result, box := c.exec()
		result.Phases["enter_ms"] = c.entered
		result.DurationMS = sandbox.Since(c.began)
		if result.ID == "" && c.record != nil { // it came to no box
			result.ID = sandbox.NewID()
		}
		c.stopped.tell(result)
		c.trail.ended(result)
		if c.record != nil {
			defer c.record.ended(result)() // who has the result finds it counted
		}
		err := sendResult(c.conn, result)
		if c.after != nil {
			c.after()
		}
		switch {
		case box != nil && c.oneShot:
			err = errors.Join(err, box.Leave())
		case box != nil:
			err = errors.Join(err, box.Close())
		}
		return err
	case r.Op == helper.OpSessionStart:
		return c.startSession()
	case r.Op == helper.OpSessionExec:
		result := c.execInSession()
		result.DurationMS = sandbox.Since(c.began)
		c.stopped.tell(result)
		c.trail.ended(result)
		if c.record != nil {
			defer c.record.ended(result)()
		}
		return sendResult(c.conn, result)
	case r.Op == helper.OpPlan:
		return c.conn.Send(document(explain(c.host, r, c.files, c.groups)))
	}
	return c.conn.Send(helper.Reply{Result: failure(refused("unknown operation %q", c.request.Op))})
}

// hangUp ends the connection. What the client passed is then nobody's any more.
func (c *connection) hangUp() error {
	err := c.conn.Shutdown()
	if errors.Is(err, unix.ENOTCONN) {
		err = nil // it was first
	}
	if c.link != nil {
		<-c.link.closed
	}
	if c.endWalk != nil {
		c.endWalk()
	}
	if c.copied != nil {
		err = errors.Join(err, c.copyDir.Close(), c.pool.copies.release(c.copied))
	}
	return errors.Join(err, c.pinned.close())
}

// exec runs one call. Whatever goes wrong becomes the envelope. The box, if there is one, has ended and is to be closed.
func (c *connection) exec() (*helper.Result, *sandbox.Box) {
	id, err := "", error(nil)
	if c.pool == nil { // whose boxes have one
		id, err = c.host.Reserve()
	}
	if err != nil {
		return identified(failure(err), id, nil, nil), nil
	}
	c.link = listen(c.conn)
	if err := c.settle(); err != nil {
		return identified(failure(err), id, nil, nil), nil
	}
	digesting := c.digest()
	phases := map[string]float64{}
	d, err := unless(c.link.over, func() (*decision, error) { return c.decide(digesting, phases) })
	if err != nil {
		return identified(failure(err), id, nil, nil), nil
	}
	if err := c.checkParams(d); err != nil {
		return identified(failure(err), id, d, nil), nil
	}
	if d.asks() {
		if err := c.conn.Send(helper.Reply{Granted: &helper.Granted{Env: d.plan.Pass, Secrets: d.plan.Secrets}}); err != nil {
			return identified(failure(err), id, d, nil), nil
		}
	}
	err = c.meant(d, digesting, phases)
	if err == nil {
		c.ports, err = publish(c.request, c.files, d)
	}
	if err != nil {
		return identified(failure(err), id, d, c.tree), nil
	}
	if c.pool != nil {
		return c.pooled(d, digesting, phases)
	}
	go c.trail.open()
	box, err := c.prepare(d, id)
	if err != nil {
		return identified(failure(err), id, d, nil), nil
	}
	tree, err := c.digested(d, digesting, box.Phases)
	return identified(c.run(box, d, tree, err), id, d, tree), box
}

// pooled is the rest of exec where boxes may be ready.
func (c *connection) pooled(d *decision, digesting <-chan digested, phases map[string]float64) (*helper.Result, *sandbox.Box) {
	end, err := c.quota.admit(d.granted.Policy.Resources)
	if err != nil {
		return identified(failure(err), sandbox.NewID(), d, nil), nil
	}
	defer end()
	k, err := c.kind(d)
	var box *sandbox.Box
	var tree *bundle.Tree
	var found bool
	if err == nil {
		box, tree, found, err = c.obtain(k.key, d, digesting, phases)
	}
	if err != nil {
		id := sandbox.NewID()
		if box != nil {
			id = box.ID
		}
		return identified(failure(err), id, d, tree), box
	}
	c.after = func() {
		if !c.leaveCopy(tree) {
			return
		}
		c.before.keep(c.spoken, d, tree.Digest, c.began)
		c.pool.served(k, tree, found)
	}
	if found {
		box.Phases = phases
		box.Phases["prepare_ms"] = 0
	} else {
		maps.Copy(box.Phases, phases)
	}
	c.calls.begin(box.ID, box, d, func() {
		c.stopped.because("killed by `skillbox kill`")
		c.link.kill()
	})
	result := identified(c.run(box, d, tree, nil), box.ID, d, tree)
	result.Sandbox.Start, result.Sandbox.NotPreloaded = box.Start, c.pool.notPreloaded(k, box)
	c.calls.end(box.ID)
	return result, box
}

// obtain finds a box that is ready for the bundle as it is now, or prepares one while the bundle is looked at. With an error there may be
// a box all the same, which is to be closed.
func (c *connection) obtain(key string, d *decision, digesting <-chan digested, phases map[string]float64) (box *sandbox.Box, tree *bundle.Tree, found bool, err error) {
	if c.pool.has(key) {
		if tree, err = c.digested(d, digesting, phases); err != nil {
			return nil, nil, false, err
		}
		if box = c.pool.take(key, tree); box != nil {
			return box, tree, true, nil
		}
	}
	c.pool.trim()
	id, err := c.host.Reserve()
	if err == nil {
		box, err = c.prepare(d, id)
	}
	if err == nil && tree == nil {
		tree, err = c.digested(d, digesting, phases)
	}
	return box, tree, false, err
}

// decide is decide, unless a service came to the same before.
func (c *connection) decide(digesting <-chan digested, phases map[string]float64) (*decision, error) {
	look := func() (*bundle.Tree, error) { return c.digestedWithin(prepareTime, digesting, phases) }
	if c.before == nil {
		return judge(c.host, c.request, c.files, c.said, look)
	}
	began := time.Now()
	var err error
	if c.spoken, err = spoken(c.request, c.said); err != nil {
		return nil, err
	}
	if found := c.before.find(c.spoken); found != nil {
		tree, err := c.digested(found.decision, digesting, phases)
		if err != nil {
			return nil, err
		}
		if found.holds(c.request, c.files, tree) {
			return found.decision, nil
		}
	}
	defer func() { phases["decide_ms"] = sandbox.Since(began) }()
	return judge(c.host, c.request, c.files, c.said, look)
}

// checkParams is decision.checkParams while the caller waits: parameters may come slowly, but not for longer than the skill may run.
func (c *connection) checkParams(d *decision) error {
	if d.params == nil || c.files.params == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- d.checkParams(c.files) }()
	select {
	case err := <-done:
		return err
	case <-c.link.over:
		return errCanceled
	case <-time.After(d.plan.Limits.Timeout):
		return refused("the parameters did not end within %v (timeout)", d.plan.Limits.Timeout)
	}
}

// prepare makes a box for this call. One that is ready too late is nobody's.
func (c *connection) prepare(d *decision, id string) (*sandbox.Box, error) {
	return inTime(func() (*sandbox.Box, error) { return sandbox.Prepare(c.host, d.plan, id) }, func(late *sandbox.Box) {
		if late != nil {
			_ = late.Close() // the client was told of the failure
		}
	})
}

// run gathers what the call brings, and runs it, unless the bundle could not be read.
func (c *connection) run(box *sandbox.Box, d *decision, tree *bundle.Tree, err error) *helper.Result {
	if err != nil {
		return failure(err)
	}
	call, err := c.link.call(d, c.request, c.files)
	if err == nil {
		err = c.trail.granted(box.ID, d, tree)
	}
	if err == nil {
		err = box.Publish(c.ports.listeners)
	}
	if err != nil {
		return failure(errors.Join(err, c.ports.retract()))
	}
	call.Record = c.trail.recorder(box)
	told := c.follow(box)
	result, err := box.Run(call)
	told()
	errPorts := c.ports.retract()
	if err != nil {
		return failure(errors.Join(err, errPorts))
	}
	if result.Published = c.ports.told; errPorts != nil {
		result.Warnings = append(result.Warnings, errPorts.Error())
	}
	takeResult(box, result)
	takeOutputs(box, d, c.files, result)
	takeChanges(box, c.files, result)
	return result
}
