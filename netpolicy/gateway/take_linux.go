package gateway

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Take is Report for a box that lives on, in which something has just ended: it waits a moment for what that left to be recorded, and
// forgets what it tells. A connection that a program still holds is told when it ends. The error says that something may be missing.
func (g *Gateway) Take() (Report, error) {
	for began := time.Now(); g.closing() && time.Since(began) < lastWords; {
		time.Sleep(time.Millisecond)
	}
	// What the kernel has told is taken in whole before the next can tell.
	err := g.net.Quiet()
	g.told.Wait()
	err = errors.Join(err, g.flowsErr, g.net.Resume())
	g.follow()
	r := &g.record
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := Report{r.totals, r.events, r.denials, r.dropped}
	r.totals, r.events, r.denials, r.dropped = Totals{}, nil, nil, 0
	return taken, err
}

// live notes a connection until the returned function is called.
func (g *Gateway) live(box *net.TCPConn) (end func()) {
	g.livingMu.Lock()
	defer g.livingMu.Unlock()
	if g.living == nil {
		g.living = map[*net.TCPConn]bool{}
	}
	g.living[box] = true
	return func() {
		g.livingMu.Lock()
		defer g.livingMu.Unlock()
		delete(g.living, box)
	}
}

// closing says that there are connections which no program of the box sends on any more, or which nobody has looked at.
func (g *Gateway) closing() bool {
	for _, l := range g.net.TCP {
		if l, ok := l.(*net.TCPListener); ok && waiting(l) {
			return true
		}
	}
	g.livingMu.Lock()
	defer g.livingMu.Unlock()
	for box := range g.living {
		if info := tcpInfo(box); info == nil || info.State != tcpEstablished {
			return true
		}
	}
	return false
}

const tcpEstablished = 1 // of the kernel's net/tcp_states.h

// waiting says that a listener has connections to accept: of one tcpi_unacked is their number (tcp_get_info of the kernel's tcp.c).
func waiting(l *net.TCPListener) bool {
	info := tcpInfo(l)
	return info != nil && info.Unacked > 0
}

// tcpInfo is nil of a socket that was closed.
func tcpInfo(c syscall.Conn) (info *unix.TCPInfo) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		// An error leaves it nil.
		info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info
}
