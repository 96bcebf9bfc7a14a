package netpolicy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Refused is a packet that a box tried to send and the rules in its namespace refused, or a datagram that a sinkhole has swallowed.
type Refused struct {
	To    netip.AddrPort // port 0 where the protocol has none
	Proto string         // "tcp", "udp", "icmp", "protocol 132"
	Limit string         // that was reached, "network.limits.rate"; "" where a rule or none refused it

	Heard bool   // by a sinkhole
	Data  []byte // of a datagram that was heard: the first 4 KiB
	Size  int64  // of it in bytes
}

// heard is what the kernel says before a datagram that a sinkhole swallows.
const heard = "heard"

// Messages and attributes of linux/netfilter/nfnetlink_log.h.
const (
	nflogPacket, nflogConfig         = 0, 1
	nflogCmd, nflogMode              = 1, 2
	nflogBind, nflogCopy             = 1, 2
	nflogPayload, nflogPrefix        = 9, 10
	refusedBytes              uint32 = 64
)

// watchRefusals asks for the packets that the chain refuse logs.
func (h *Handle) watchRefusals(bytes uint32) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netpolicy: open nfnetlink_log: %w", err)
	}
	h.refused = &monitor{conn}
	mode := append(binary.BigEndian.AppendUint32(nil, bytes), nflogCopy, 0)
	for _, a := range []netlink.Attribute{{Type: nflogCmd, Data: []byte{nflogBind}}, {Type: nflogMode, Data: mode}} {
		data, err := netlink.MarshalAttributes([]netlink.Attribute{a})
		if err == nil {
			_, err = conn.Execute(netlink.Message{
				Header: netlink.Header{Type: unix.NFNL_SUBSYS_ULOG<<8 | nflogConfig, Flags: netlink.Request | netlink.Acknowledge},
				Data:   append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, refusals >> 8, refusals & 0xff}, data...),
			})
		}
		if err != nil {
			return fmt.Errorf("netpolicy: watch refused packets (kernel module nfnetlink_log): %w", err)
		}
	}
	return nil
}

// EachRefused calls f for every refused packet that the kernel tells of, until Quiet or Close. A flood is told in part.
func (h *Handle) EachRefused(f func(Refused)) {
	h.refused.each(func(kind netlink.HeaderType, data []byte) {
		if r, ok := parseRefused(kind, data); ok {
			f(r)
		}
	})
}

func parseRefused(kind netlink.HeaderType, data []byte) (Refused, bool) {
	if kind != unix.NFNL_SUBSYS_ULOG<<8|nflogPacket || len(data) < 4 {
		return Refused{}, false
	}
	attributes, err := netlink.UnmarshalAttributes(data[4:])
	if err != nil {
		return Refused{}, false
	}
	var r Refused
	ok, limit := false, ""
	for _, a := range attributes {
		switch a.Type {
		case nflogPayload:
			r, ok = parsePacket(a.Data)
		case nflogPrefix:
			limit = string(bytes.TrimRight(a.Data, "\x00"))
		}
	}
	if r.Limit = limit; limit == heard {
		r.Limit, r.Heard = "", true
	} else {
		r.Data, r.Size = nil, 0
	}
	return r, ok
}

// parsePacket reads as much of an IP packet as a decision is about.
func parsePacket(p []byte) (r Refused, ok bool) {
	var proto byte
	var addr netip.Addr
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		proto, addr = p[9], netip.AddrFrom4([4]byte(p[16:20]))
		p = p[min(len(p), int(p[0]&15)*4):]
	case len(p) >= 40 && p[0]>>4 == 6:
		proto, addr = p[6], netip.AddrFrom16([16]byte(p[24:40]))
		p = p[40:]
	default:
		return Refused{}, false
	}
	var port uint16
	switch proto {
	case unix.IPPROTO_TCP:
		r.Proto = "tcp"
	case unix.IPPROTO_UDP:
		r.Proto = "udp"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		r.Proto = "icmp"
	default:
		r.Proto = fmt.Sprintf("protocol %d", proto)
	}
	if (r.Proto == "tcp" || r.Proto == "udp") && len(p) >= 4 {
		port = binary.BigEndian.Uint16(p[2:4])
	}
	if r.Proto == "udp" && len(p) >= 8 {
		r.Data, r.Size = bytes.Clone(p[8:]), max(0, int64(binary.BigEndian.Uint16(p[4:6]))-8)
	}
	r.To = netip.AddrPortFrom(addr, port)
	return r, true
}
