package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/netpolicy"
	"skillbox/wire"
)

// Broker lets callers in and keeps a worker for each of them.
type Broker struct {
	Listening *os.File
	Config    string        // path of service.yaml, which may not exist
	Idle      time.Duration // after so long without calls a worker leaves
	Log       *slog.Logger
	Audit     *audit.Log // of the machine

	here    namespaces
	config  config
	meters  meters
	ids     blocks
	maker   netpolicy.Maker
	said    seldom
	groups  *cgroup.Delegation // nil without cgroups
	starter chan func()

	mu      sync.Mutex
	current map[uint32]*worker // that callers are sent to, by user
	all     map[*worker]bool   // with those that leave
	ending  bool
	left    sync.WaitGroup
}

const (
	// maxWorkers are there at a time, and maxLeaving of one user: each has calls that go on.
	maxWorkers, maxLeaving = 256, 4
	// acceptTime is how often the broker looks whether it is to end, and pause how long it waits where the machine has no descriptor, watch or
	// memory left.
	acceptTime, pause = 200 * time.Millisecond, 20 * time.Millisecond
	// endTime is how long workers may take to end their calls.
	endTime = 15 * time.Second
)

// Run serves until ctx ends. Every call that runs then is ended, and its caller told.
func (b *Broker) Run(ctx context.Context) error {
	b.current, b.all, b.starter = map[uint32]*worker{}, map[*worker]bool{}, make(chan func())
	defer close(b.starter)
	go startOnOneThread(b.starter)
	var err error
	if b.here, err = ownNamespaces(); err != nil {
		return err
	}
	config, err := b.config.read(b.Config) // at once, and not at the first call
	if err == nil {
		_, err = config.QuotaOf(access.Caller{})
	}
	if err != nil {
		return err
	}
	if b.groups, err = b.delegate(); err != nil {
		return err
	}
	swept, err := netpolicy.Sweep() // of workers whose broker died
	if err != nil {
		return err
	}
	if swept > 0 {
		b.Log.Info("links swept", "links", swept)
	}
	for ctx.Err() == nil {
		conn, who, err := wire.Accept(int(b.Listening.Fd()), acceptTime)
		switch {
		case errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOTSOCK):
			return errors.Join(err, b.end())
		case err != nil:
			b.warn("accept", "error", err)
			time.Sleep(pause)
		case conn != nil:
			b.admit(conn, who)
		}
	}
	return b.end()
}

// admit answers or passes on one connection, and never waits.
func (b *Broker) admit(conn *wire.Conn, who unix.Ucred) {
	defer conn.Close()
	if !b.meters.take(who.Uid, time.Now()) {
		b.warn("too many connections in a second", "uid", who.Uid)
		refuse(conn, busy("more than %d connections in a second", perSecond))
		return
	}
	caller, err := b.identify(conn, who)
	if err == nil {
		b.mu.Lock()
		err = b.send(conn, caller)
		b.mu.Unlock()
	}
	if err != nil {
		b.warn("not served", "uid", who.Uid, "pid", who.Pid, "why", err.Error())
		answer(conn, err)
	}
}

// warn logs what callers can bring about as often as they like.
func (b *Broker) warn(what string, about ...any) {
	if unsaid, now := b.said.now(time.Now()); now {
		b.Log.Warn(what, append(about, "unsaid", unsaid)...)
	}
}

// send passes a connection on to the caller's worker, which is started if there is none. b.mu is held.
func (b *Broker) send(conn *wire.Conn, c caller) error {
	if b.ending {
		return &helper.Error{Message: "the system service is being stopped", Hint: "call again when it runs"}
	}
	w := b.current[c.uid]
	if w == nil {
		var err error
		if w, err = b.hire(c); err != nil {
			return err
		}
	}
	if w.gid != c.gid {
		return elsewhere("the system service serves your user %d in group %d, and this call comes in group %d", c.uid, w.gid, c.gid)
	}
	err := wire.Pass(int(w.to.Fd()), conn, c.note())
	if errors.Is(err, wire.ErrFull) {
		return busy("your worker has not taken the connections before this one")
	}
	return err
}

// decline is an error that concerns the caller: another skillboxd may serve.
type decline struct{ why *helper.Error }

func (d *decline) Error() string { return d.why.Error() }

// answer tells a client why it is not served.
func answer(conn *wire.Conn, err error) {
	var no *decline
	var wrong *helper.Error
	switch {
	case errors.As(err, &no):
		_ = conn.SendNow(helper.Reply{Declined: no.why}) // whoever does not read it does not want to know
	case errors.As(err, &wrong):
		refuse(conn, wrong)
	default:
		_ = conn.SendNow(helper.Reply{Result: helper.Failure(helper.Failed, &helper.Error{Message: err.Error()})})
	}
}

func refuse(conn *wire.Conn, why *helper.Error) {
	_ = conn.SendNow(helper.Reply{Result: helper.Failure(helper.Refused, why)}) // whoever does not read it does not want to know
}

func busy(format string, a ...any) *helper.Error {
	return &helper.Error{
		Message: "the system service's quota for one caller: " + fmt.Sprintf(format, a...),
		Hint:    "make fewer calls at a time; the administrator sets quotas in /etc/skillbox/service.yaml",
	}
}

// end tells every worker that nobody comes any more, which ends its calls, and waits.
func (b *Broker) end() error {
	b.mu.Lock()
	b.ending = true
	for w := range b.all {
		w.retire()
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		b.left.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(endTime): // its user may have stopped it
		b.mu.Lock()
		for w := range b.all {
			b.Log.Warn("worker killed that did not end", "uid", w.uid, "after", endTime.String())
			w.kill()
		}
		b.mu.Unlock()
		<-done
	}
	if b.groups == nil {
		return nil
	}
	return b.groups.Close()
}
