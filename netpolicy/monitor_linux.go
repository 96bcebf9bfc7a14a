package netpolicy

import (
	"errors"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// monitor is a netlink socket on which the kernel tells what happens in the namespace that it was opened in.
type monitor struct{ conn *netlink.Conn }

func (m *monitor) Close() error { return m.conn.Close() }

// quiet lets each return when it has told what is there now.
func (m *monitor) quiet() error { return m.conn.SetReadDeadline(time.Unix(1, 0)) }

// each calls f for every message until quiet or Close. What comes too fast is lost.
func (m *monitor) each(f func(kind netlink.HeaderType, data []byte)) {
	for {
		messages, err := m.conn.Receive()
		for _, msg := range messages {
			f(msg.Header.Type, msg.Data)
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			m.drain(f)
			return
		}
	}
}

// drain reads what is left, without waiting for more.
func (m *monitor) drain(f func(kind netlink.HeaderType, data []byte)) {
	socket, err := m.conn.SyscallConn()
	if err != nil {
		return // closed
	}
	buffer := make([]byte, 1<<16)
	// An error says that it is closed.
	_ = socket.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
			if err == unix.EINTR || err == unix.ENOBUFS {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			messages, err := syscall.ParseNetlinkMessage(buffer[:n])
			if err != nil {
				return
			}
			for _, msg := range messages {
				f(netlink.HeaderType(msg.Header.Type), msg.Data)
			}
		}
	})
}

// resume lets each wait for messages again.
func (m *monitor) resume() error { return m.conn.SetReadDeadline(time.Time{}) }

// Resume is for EachRefused and EachFlow to be called again after Quiet; what came meanwhile waits for them.
func (h *Handle) Resume() error {
	err := h.refused.resume()
	if h.flows != nil {
		err = errors.Join(err, h.flows.resume())
	}
	return err
}

// Quiet lets EachRefused and EachFlow return when they have told what is there now.
func (h *Handle) Quiet() error {
	err := h.refused.quiet()
	if h.flows != nil {
		err = errors.Join(err, h.flows.quiet())
	}
	return err
}
