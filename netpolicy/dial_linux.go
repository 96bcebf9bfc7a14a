package netpolicy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// reachTime is what a listener at loopback may take to answer: one whose backlog is full does not.
const reachTime = 5 * time.Second

// Dial connects with a listener of the box's own, at its loopback, as a program inside would. The socket belongs to the box's network
// namespace; the box has no part in it but as the other end.
func (h *Handle) Dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	var c net.Conn
	err := within(h.ns, func() error {
		dialer := net.Dialer{Timeout: reachTime}
		var err error
		for _, host := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			var errHost error
			if c, errHost = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(host, port).String()); errHost == nil {
				return nil
			}
			if err = errors.Join(err, errHost); !errors.Is(errHost, syscall.ECONNREFUSED) {
				break
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
