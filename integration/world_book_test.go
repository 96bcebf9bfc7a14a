//go:build linux

package integration

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// book is what the world's servers and its cable saw.
type book struct {
	mu      sync.Mutex
	visits  []*visit
	asked   []string       // "udp A api.allowed.example."
	packets map[string]int // to the internet, by "tcp 20.1.1.10:443", "icmp 8.8.8.8"
	unixes  int            // connections to the host's abstract socket
}

// visit is a connection, or the datagrams of one peer, that a server got.
type visit struct {
	to       netip.AddrPort
	from     netip.AddrPort
	names    []string // in a TLS hello
	hosts    []string // of HTTP requests, with their path
	received []byte   // the first 64 KiB
	bytes    int64    // all that was received
}

func (v *visit) String() string {
	return fmt.Sprintf("%s from %s names %q hosts %q %d bytes %.60q", v.to, v.from, v.names, v.hosts, v.bytes, v.received)
}

func newBook() *book { return &book{packets: map[string]int{}} }

// write changes the book.
func (b *book) write(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// enter begins a visit.
func (b *book) enter(to, from net.Addr) *visit {
	v := &visit{}
	v.to, _ = netip.ParseAddrPort(to.String())
	v.from, _ = netip.ParseAddrPort(from.String())
	v.to = netip.AddrPortFrom(v.to.Addr().Unmap(), v.to.Port())
	v.from = netip.AddrPortFrom(v.from.Addr().Unmap(), v.from.Port())
	b.write(func() { b.visits = append(b.visits, v) })
	return v
}

func (b *book) receive(v *visit, data []byte) {
	b.write(func() {
		v.bytes += int64(len(data))
		v.received = append(v.received, data[:min(len(data), 64<<10-len(v.received))]...)
	})
}

// forget begins an empty book.
func (w *world) forget() {
	w.quiet()
	w.book.write(func() { w.book.visits, w.book.asked, w.book.packets, w.book.unixes = nil, nil, map[string]int{}, 0 })
	w.zone.forget()
}

// visits are those of which match says yes; nil is all.
func (w *world) visits(match func(*visit) bool) (found []visit) {
	w.quiet()
	w.book.write(func() {
		for _, v := range w.book.visits {
			if match == nil || match(v) {
				copied := *v
				copied.names, copied.hosts, copied.received = slices.Clone(v.names), slices.Clone(v.hosts), slices.Clone(v.received)
				found = append(found, copied)
			}
		}
	})
	return found
}

// asked are the questions that reached the DNS server.
func (w *world) asked() (all []string) {
	w.book.write(func() { all = slices.Clone(w.book.asked) })
	return all
}

// only demands that packets went to these "tcp ADDRESS:PORT" alone, besides the DNS server of the host, and that no server of the host
// was visited.
func (w *world) only(t *testing.T, to ...string) {
	t.Helper()
	w.quiet()
	w.book.write(func() {
		for p, n := range w.book.packets {
			if !slices.Contains(to, p) && p != "udp "+join(resolverAddr, 53) && p != "tcp "+join(resolverAddr, 53) {
				t.Errorf("%d packets left the host for %s", n, p)
			}
		}
		for _, v := range w.book.visits {
			if v.to.Addr().IsLoopback() || v.to.Addr().String() == hostAddr || v.to.Addr().String() == hostAddr6 {
				t.Errorf("a service of the host was visited: %v", v)
			}
		}
		if w.book.unixes > 0 {
			t.Errorf("%d connections to an abstract socket of the host", w.book.unixes)
		}
	})
}

// mark is the port of datagrams that tell when everything before them has been seen.
const mark = 65001

// quiet waits until all packets that left the host so far are in the book.
func (w *world) quiet() {
	key := fmt.Sprintf("mark %d", time.Now().UnixNano())
	err := w.host.Run(func() error {
		c, err := net.Dial("udp", join(gatewayAddr, mark))
		if err == nil {
			_, err = c.Write([]byte(key))
			c.Close()
		}
		return err
	})
	for began := time.Now(); err == nil && time.Since(began) < patience(time.Second); time.Sleep(time.Millisecond) {
		seen := false
		w.book.write(func() {
			seen = w.book.packets[key] > 0
			delete(w.book.packets, key)
		})
		if seen {
			return
		}
	}
}

// watch writes down every packet that comes over the cable.
func (w *world) watch() error {
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return fmt.Errorf("watch the cable: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<20) // as much as an ordinary user may have
	}
	go func() {
		buffer := make([]byte, 256)
		for {
			n, from, err := unix.Recvfrom(fd, buffer, 0)
			link, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || !ok {
				continue
			}
			key := packet(buffer[:n])
			if link.Pkttype != unix.PACKET_OUTGOING && key != "" {
				w.book.write(func() { w.book.packets[key]++ })
			}
		}
	}()
	return nil
}

// packet tells where a packet goes; "" is what keeps a network of two machines going.
func packet(p []byte) string {
	if len(p) < 20 {
		return ""
	}
	var to netip.Addr
	var protocol byte
	var data []byte
	switch {
	case p[0]>>4 == 4:
		to, protocol, data = netip.AddrFrom4([4]byte(p[16:20])), p[9], p[min(len(p), int(p[0]&15)*4):]
		if binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
			return fmt.Sprintf("fragment %s", to)
		}
	case p[0]>>4 == 6 && len(p) >= 40:
		to, protocol, data = netip.AddrFrom16([16]byte(p[24:40])), p[6], p[40:]
	default:
		return "" // ARP
	}
	switch {
	case protocol == unix.IPPROTO_ICMPV6 && len(data) > 0 && data[0] >= 130 && data[0] <= 136 && data[0] != 134,
		protocol == unix.IPPROTO_HOPOPTS && len(data) > 8 && data[8] == 143: // neighbour discovery, but no advertisement of a router, and multicast listeners (RFC 4861, 3810)
		return ""
	case (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP) && len(data) >= 8:
		port := int(binary.BigEndian.Uint16(data[2:]))
		if port == mark && strings.HasPrefix(string(data[8:]), "mark ") {
			return string(data[8:])
		}
		return fmt.Sprintf("%s %s", map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[protocol], join(to.String(), port))
	case protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6:
		return fmt.Sprintf("icmp %s", to)
	}
	return fmt.Sprintf("protocol %d %s", protocol, to)
}
