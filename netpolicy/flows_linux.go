package netpolicy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flow is what one connection over a link carried, or one exchange of UDP.
type Flow struct {
	To             netip.AddrPort
	Proto          string // "tcp" or "udp"
	Sent, Received int64  // bytes of packets; zero where the kernel does not count them
	Again          bool   // it was told before: these are the bytes since
}

// Attributes of linux/netfilter/nfnetlink_conntrack.h, beside those in conntrack_linux.go.
const (
	ctNew                                    = 0
	ctaTupleReply                            = 2
	ctaCountersOrig, ctaCountersReply        = 9, 10
	ctaTupleProto                            = 2
	ctaDestination4, ctaDestination6         = 2, 4
	ctaProtoNum, ctaProtoDestination         = 1, 3
	ctaCountersBytes                         = 2
	nfnlgrpConntrackNew               uint32 = 1
	nfnlgrpConntrackDestroy           uint32 = 3
)

// watchFlows asks for connections that begin and end.
func (h *Handle) watchFlows() error {
	// Not every container may write here; there are no bytes then.
	_ = os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_acct", []byte("1"), 0)
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("netpolicy: open nfnetlink: %w", err)
	}
	h.flows = &monitor{conn}
	if err := errors.Join(conn.JoinGroup(nfnlgrpConntrackNew), conn.JoinGroup(nfnlgrpConntrackDestroy)); err != nil {
		return fmt.Errorf("netpolicy: watch connections (kernel module nf_conntrack_netlink): %w", err)
	}
	h.flowTable, err = openFlowTable()
	return err
}

// EachFlow calls f for every flow of the link when the kernel forgets it, and after Quiet for those that it still knows. Without a link
// it returns at once. After Resume it may be called again, and tells what there is since. To list the table would take 12 ms where the host's has 262144 buckets, whose number all namespaces share.
func (h *Handle) EachFlow(f func(Flow)) error {
	if h.flows == nil {
		return nil
	}
	if h.live == nil {
		h.live, h.told = map[string]byte{}, map[string]Flow{}
	}
	h.flows.each(func(kind netlink.HeaderType, data []byte) {
		flow, ok := parseFlow(data)
		if !ok {
			return
		}
		tuple := tupleOf(data)
		if kind&0xff == ctNew {
			h.live[string(tuple)] = data[0]
			delete(h.told, string(tuple))
			return
		}
		f(flow.since(h.told[string(tuple)]))
		delete(h.live, string(tuple))
		delete(h.told, string(tuple))
	})
	var errs []error
	for tuple, family := range h.live {
		// The kernel marks the one answer as a part of many: with an acknowledgement it has an end.
		known, err := h.flowTable.do(ctGet, netlink.Acknowledge, family, []byte(tuple))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("netpolicy: ask for a connection: %w", err))
		}
		for _, m := range known {
			if flow, ok := parseFlow(m.Data); ok {
				f(flow.since(h.told[tuple]))
				flow.Again = true
				h.told[tuple] = flow
			}
		}
	}
	return errors.Join(errs...)
}

// since is what a flow carried after it was told last.
func (f Flow) since(told Flow) Flow {
	f.Again, f.Sent, f.Received = told.Again, f.Sent-told.Sent, f.Received-told.Received
	return f
}

// tupleOf is the attribute that names an entry, as a request has it.
func tupleOf(data []byte) []byte {
	d, err := netlink.NewAttributeDecoder(data[nfgenmsg:])
	if err != nil {
		return nil
	}
	for d.Next() {
		if d.Type() == ctaTupleOrig {
			attribute, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: ctaTupleOrig | unix.NLA_F_NESTED, Data: d.Bytes()}})
			if err != nil {
				return nil
			}
			return attribute
		}
	}
	return nil
}

// parseFlow reads an entry of the table. What was diverted, or stayed on loopback, is no flow of the link.
func parseFlow(data []byte) (flow Flow, ok bool) {
	if len(data) < nfgenmsg {
		return Flow{}, false
	}
	d, err := netlink.NewAttributeDecoder(data[nfgenmsg:])
	if err != nil {
		return Flow{}, false
	}
	var answers netip.Addr
	for d.Next() {
		switch d.Type() {
		case ctaTupleOrig:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				_, to, proto, port := parseTuple(d)
				flow.To, flow.Proto = netip.AddrPortFrom(to, port), proto
				return nil
			})
		case ctaTupleReply:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				answers, _, _, _ = parseTuple(d)
				return nil
			})
		case ctaCountersOrig:
			flow.Sent = parseBytes(d)
		case ctaCountersReply:
			flow.Received = parseBytes(d)
		}
	}
	to := flow.To.Addr()
	return flow, d.Err() == nil && to.IsValid() && to == answers && !to.IsLoopback() && flow.Proto != ""
}

func parseTuple(d *netlink.AttributeDecoder) (from, to netip.Addr, proto string, port uint16) {
	for d.Next() {
		switch d.Type() {
		case ctaTupleIP:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case ctaSource4, ctaSource6:
						from, _ = netip.AddrFromSlice(d.Bytes())
					case ctaDestination4, ctaDestination6:
						to, _ = netip.AddrFromSlice(d.Bytes())
					}
				}
				return nil
			})
		case ctaTupleProto:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case ctaProtoNum:
						proto = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[d.Uint8()]
					case ctaProtoDestination:
						if b := d.Bytes(); len(b) == 2 {
							port = binary.BigEndian.Uint16(b)
						}
					}
				}
				return nil
			})
		}
	}
	return from, to, proto, port
}

func parseBytes(d *netlink.AttributeDecoder) (n int64) {
	d.Nested(func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			if b := d.Bytes(); d.Type() == ctaCountersBytes && len(b) == 8 {
				n = int64(binary.BigEndian.Uint64(b))
			}
		}
		return nil
	})
	return n
}

func (h *Handle) closeFlows() error {
	if h.flows == nil {
		return nil
	}
	err := h.flows.Close()
	if h.flowTable != nil {
		err = errors.Join(err, h.flowTable.Close())
	}
	return err
}
