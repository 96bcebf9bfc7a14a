// Package observe says what a skill does: it is the seccomp.Watcher of a box, and makes records of the calls that its Spec watches.
//
// Opens, changes of files and connections of IP sockets are made here in the skill's place, with its rights: what the record says is what
// was done. Everything else, programs that are started above all, is read from the skill's memory and left to the kernel, which reads
// it again: such keys of a record are listed in Claimed. Nothing is ever allowed because of what was read.
package observe

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/seccomp"
	"skillbox/seccomp/opener"
)

// Box is what an Observer must know of one.
type Box struct {
	Init     int    // its pid, here
	Program  string // that becomes the opener
	UID, GID int    // the skill's, here
	Own      string // a path below init's program, which is no directory: nothing is there to be started
	Confined bool   // it has no network but its own loopback
}

// Seen is something that the skill did.
type Seen struct {
	Time   time.Time // of the first, where it stands for several
	Detail audit.Detail
}

// Bounds of what is remembered.
const (
	maxWaiting = 4096  // different records that nobody has taken yet
	maxSeen    = 20000 // of one call of the skill
	// The same in bytes of what they say: a skill chooses how long its words are.
	maxWaitingBytes = 8 << 20
	maxSeenBytes    = 16 << 20
	// maxConnecting is how many connections may be on their way at a time; more are left to the kernel.
	maxConnecting = 32
)

// Observer is the Watcher of one box.
type Observer struct {
	box     Box
	started chan struct{} // closed when the two below are set
	helper  *opener.Opener
	failure error

	mu      sync.Mutex
	waiting []Seen
	index   map[string]int // of what waits, by what it says
	seen    int            // since Restart
	dropped uint64
	// Bytes of what waits, and since Restart.
	waitingBytes, seenBytes int
	full                    chan struct{} // has an element when much waits
	connecting              map[int]bool  // descriptors
	closed                  bool
	failed                  error
}

// New makes one, for a box whose init lives in all its namespaces. Close it before the supervisor, which may wait for it.
func New(b Box) *Observer {
	o := &Observer{box: b, started: make(chan struct{}), index: map[string]int{}, full: make(chan struct{}, 1), connecting: map[int]bool{}}
	go func() {
		defer close(o.started)
		o.helper, o.failure = opener.Start(b.Program, b.Init, b.UID, b.GID)
	}()
	return o
}

// opener waits until the process is there.
func (o *Observer) opener() (*opener.Opener, error) {
	<-o.started
	return o.helper, o.failure
}

// Close ends what is on its way. What was seen can still be taken.
func (o *Observer) Close() error {
	o.mu.Lock()
	o.closed = true
	for fd := range o.connecting {
		// It wakes a connect that waits. An error says that it is over.
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
	o.mu.Unlock()
	<-o.started
	if o.helper == nil {
		return nil
	}
	return o.helper.Close()
}

// Ready waits until calls can be made in the skill's place, or says why they cannot.
func (o *Observer) Ready() error {
	_, err := o.opener()
	return err
}

// Full has an element when so much waits that it should be taken before more is dropped.
func (o *Observer) Full() <-chan struct{} { return o.full }

// Take returns what was seen since it was last called, in its order.
func (o *Observer) Take() []Seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.waiting
	o.waiting, o.waitingBytes = nil, 0
	clear(o.index)
	return all
}

// Restart begins a new count of what is dropped, for another call in the same box, and returns the old one.
func (o *Observer) Restart() (dropped uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	dropped, o.dropped, o.seen, o.seenBytes = o.dropped, 0, 0, 0
	return dropped
}

// Err says why less was seen than was asked for, or is nil.
func (o *Observer) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// note remembers. What says the same as one that waits is counted there.
func (o *Observer) note(d audit.Detail) {
	key := fmt.Sprintf("%#v", d) // with words in quotes: what differs only by where one word ends is not the same
	o.mu.Lock()
	defer o.mu.Unlock()
	if i, there := o.index[key]; there {
		o.waiting[i].Detail = again(o.waiting[i].Detail)
		return
	}
	if len(o.waiting) >= maxWaiting || o.seen >= maxSeen || o.waitingBytes+len(key) > maxWaitingBytes || o.seenBytes+len(key) > maxSeenBytes {
		o.dropped++
		return
	}
	was := o.waitingBytes
	o.seen++
	o.waitingBytes += len(key)
	o.seenBytes += len(key)
	o.index[key] = len(o.waiting)
	o.waiting = append(o.waiting, Seen{Time: time.Now(), Detail: d})
	if len(o.waiting) == maxWaiting/2 || was < maxWaitingBytes/2 && o.waitingBytes >= maxWaitingBytes/2 {
		select {
		case o.full <- struct{}{}:
		default:
		}
	}
}

// again counts one more of the same.
func again(d audit.Detail) audit.Detail {
	more := func(o *audit.Outcome) { o.Count = max(o.Count, 1) + 1 }
	switch d := d.(type) {
	case audit.Exec:
		more(&d.Outcome)
		return d
	case audit.File:
		more(&d.Outcome)
		return d
	case audit.Syscall:
		more(&d.Outcome)
		return d
	case audit.Connection:
		more(&d.Outcome)
		return d
	}
	return d
}

// fail remembers the first thing that kept us from seeing.
func (o *Observer) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil && !o.closed {
		o.failed = err
	}
}

// Watch implements seccomp.Watcher.
func (o *Observer) Watch(n *seccomp.Notification) seccomp.Answer {
	p, err := look(n.PID)
	if err != nil {
		return o.unknown(n, err)
	}
	if p.group == o.box.Init {
		return seccomp.Continue() // ours
	}
	c := &call{Observer: o, n: n, caller: p}
	if handle := handlers[n.Name]; handle != nil {
		return handle(c)
	}
	return c.other()
}

// unknown answers a call of whose caller nothing could be read. One that is gone needs no answer; one that waits still must not go on
// unseen.
func (o *Observer) unknown(n *seccomp.Notification, err error) seccomp.Answer {
	if (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)) && !n.Valid() {
		return seccomp.Continue()
	}
	o.fail(fmt.Errorf("observe: %s of thread %d: %w", n.Name, n.PID, err))
	return seccomp.Fail(unix.EIO)
}

// call is one watched call.
type call struct {
	*Observer
	n      *seccomp.Notification
	caller process
}

// arg is an argument of type int.
func (c *call) arg(n int) int { return int(int32(c.n.Args[n])) }

// handlers know the arguments of calls, by their names.
var handlers map[string]func(*call) seccomp.Answer

func init() {
	handlers = map[string]func(*call) seccomp.Answer{
		"execve": (*call).execve, "execveat": (*call).execveat,
		"open": (*call).open, "openat": (*call).openat, "creat": (*call).creat,
		"connect": (*call).connect, "bind": (*call).bind, "listen": (*call).listen, "sendto": (*call).sendto,
		"fchmod": func(c *call) seccomp.Answer { return c.ofOpen("mode") }, "fchown": func(c *call) seccomp.Answer { return c.ofOpen("owner") },
	}
	for name, path := range map[string][2]int{"chown": {-1, 0}, "lchown": {-1, 0}, "fchownat": {0, 1}} {
		handlers[name] = func(c *call) seccomp.Answer { return c.owner(path[0], path[1]) }
	}
	for name, change := range changes {
		handlers[name] = func(c *call) seccomp.Answer { return c.change(change) }
	}
}

// result is an Outcome by the errno that a call got.
func result(errno unix.Errno, layer string) audit.Outcome {
	one := audit.Outcome{Verdict: audit.Allowed}
	if errno != 0 {
		one.Verdict, one.Error = audit.Failed, errnoName(errno)
		if errno == unix.EACCES || errno == unix.EPERM || errno == unix.EROFS {
			one.Verdict, one.Layer = audit.Denied, layer
		}
	}
	return one
}

func errnoName(errno unix.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// onPath opens a directory of a process's, as a link of its /proc says it.
func (c *call) onPath(link string) (int, error) {
	return unix.Open(fmt.Sprintf("/proc/%d/%s", c.n.PID, link), unix.O_PATH|unix.O_CLOEXEC, 0)
}

// ownLink says where a descriptor of ours leads, as the box sees it; "" where nobody can say.
func ownLink(fd int) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return ""
	}
	return target
}
