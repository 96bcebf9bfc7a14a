package main

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func([]string) (any, error){"sockets": sockets, "socket-options": socketOptions, "unix-sockets": unixSockets})

// sockets tries to open every kind of socket that reaches a network otherwise than by TCP and UDP, and to send with it to the address
// that is its argument.
func sockets(args []string) (any, error) {
	to := netip.MustParseAddr(args[0])
	got := map[string]string{}
	for _, s := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"ping socket", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{"ping socket, v6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
		{"raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw ICMPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"raw TCP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP},
		{"raw UDP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP},
		{"raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW},
		{"IPv4 in IPv4", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_IPIP},
		{"GRE", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE},
		{"packets", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		{"packets without heads", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300},
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		{"SCTP, one to many", unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP},
		{"DCCP", unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP},
		{"UDP-Lite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{"MPTCP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
		{"SMC", unix.AF_SMC, unix.SOCK_STREAM, 0},
		{"RDS", unix.AF_RDS, unix.SOCK_SEQPACKET, 0},
		{"TIPC", unix.AF_TIPC, unix.SOCK_RDM, 0},
		{"XDP", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		{"sock_diag", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
		{"xfrm", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM},
		{"generic netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC},
		{"key", unix.AF_KEY, unix.SOCK_RAW, 2},
	} {
		fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)
		got[s.name] = answer(err)
		if err == nil {
			got[s.name] = "opened, " + answer(sendTo(fd, s.family, to))
			unix.Close(fd)
		}
	}
	return got, nil
}

// sendTo sends an echo request, or what a receiver takes for one.
func sendTo(fd, family int, to netip.Addr) error {
	message := []byte{8, 0, 0, 0, 0, 1, 0, 1, 's', 'e', 'c', 'r', 'e', 't'}
	switch family {
	case unix.AF_INET:
		return unix.Sendto(fd, message, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: to.As4(), Port: 7})
	case unix.AF_INET6:
		message[0] = 128
		return unix.Sendto(fd, message, unix.MSG_DONTWAIT, &unix.SockaddrInet6{Addr: to.As16()})
	}
	return nil
}

// socketOptions sets what could lead a packet around the rules, on sockets that a skill may have, and then tries to reach the address
// that is its argument. An option that has no effect is harmless: what counts is where packets go.
func socketOptions(args []string) (any, error) {
	to := netip.MustParseAddrPort(args[0])
	got := map[string]string{}
	sourceRoute := string([]byte{131, 11, 4, 8, 8, 8, 8, 20, 1, 1, 30, 0}) // loose: through 8.8.8.8 and 20.1.1.30
	for _, o := range []struct {
		name string
		set  func(fd int) error
	}{
		{"nothing", func(int) error { return nil }},
		{"SO_BINDTODEVICE eth0", func(fd int) error { return unix.BindToDevice(fd, "eth0") }},
		{"SO_BINDTODEVICE lo", func(fd int) error { return unix.BindToDevice(fd, "lo") }},
		{"IP_TRANSPARENT", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1) }},
		{"IP_FREEBIND, foreign source", func(fd int) error {
			if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_FREEBIND, 1); err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{11, 22, 33, 9}})
		}},
		{"foreign source", func(fd int) error { return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{11, 22, 33, 2}}) }},
		{"source 127.0.0.1", func(fd int) error { return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) }},
		{"SO_MARK", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1) }},
		{"SO_PRIORITY", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, 6) }},
		{"source route", func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, sourceRoute) }},
		{"record route", func(fd int) error {
			return unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, string([]byte{7, 39, 4})+strings.Repeat("\x00", 37))
		}},
		{"SO_DONTROUTE", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DONTROUTE, 1) }},
		{"IP_TTL 1", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TTL, 1) }},
		{"IP_HDRINCL", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_HDRINCL, 1) }},
		{"multicast membership", func(fd int) error {
			return unix.SetsockoptIPMreq(fd, unix.SOL_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: [4]byte{224, 0, 0, 251}})
		}},
		{"SO_BROADCAST", func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1) }},
	} {
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			got[o.name+map[int]string{unix.SOCK_STREAM: ", tcp", unix.SOCK_DGRAM: ", udp"}[kind]] = reach(kind, to, o.set)
		}
	}
	got["data in the SYN"] = fastOpen(to)
	got["datagram of 8000 bytes"] = reachWith(unix.SOCK_DGRAM, to, nil, make([]byte, 8000))
	got["datagram of 60000 bytes"] = reachWith(unix.SOCK_DGRAM, to, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	}, make([]byte, 60000))
	return got, nil
}

func reach(kind int, to netip.AddrPort, set func(int) error) string {
	return reachWith(kind, to, set, []byte("secret"))
}

// reachWith sets an option and sends, and says how far it came: "set: EPERM", "connect: ECONNREFUSED", "send: EPERM", "sent".
func reachWith(kind int, to netip.AddrPort, set func(int) error, data []byte) string {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "socket: " + answer(err)
	}
	defer unix.Close(fd)
	prefix := ""
	if set != nil {
		if err := set(fd); err != nil {
			prefix = "set: " + answer(err) + ", " // it is tried all the same
		}
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2})
	at := &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	if err := unix.Connect(fd, at); err != nil {
		return prefix + "connect: " + answer(err)
	}
	if _, err := unix.Write(fd, data); err != nil {
		return prefix + "send: " + answer(err)
	}
	return prefix + "sent"
}

// fastOpen sends data with the first packet (RFC 7413).
func fastOpen(to netip.AddrPort) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return answer(err)
	}
	defer unix.Close(fd)
	err = unix.Sendto(fd, []byte("secret"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err != nil {
		return "send: " + answer(err)
	}
	return "sent"
}

// unixSockets connects to the abstract sockets that are its arguments.
func unixSockets(names []string) (any, error) {
	got := map[string]string{}
	for _, name := range names {
		for _, network := range []string{"unix", "unixgram", "unixpacket"} {
			c, err := net.DialTimeout(network, name, time.Second)
			got[network+" "+name] = outcomeOf(err)
			if err == nil {
				c.Close()
			}
		}
	}
	return got, nil
}
