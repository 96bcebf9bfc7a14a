package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// flowTable is the conntrack table of the namespace that it was opened in.
type flowTable struct{ conn *netlink.Conn }

func openFlowTable() (*flowTable, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("netpolicy: open nfnetlink: %w", err)
	}
	return &flowTable{conn}, nil
}

func (t *flowTable) Close() error { return t.conn.Close() }

// Messages and attributes of linux/netfilter/nfnetlink_conntrack.h; the flag stands in nf_conntrack_netlink.c.
const (
	ctGet, ctDelete                           = 1, 2
	ctaTupleOrig, ctaFilter                   = 1, 25
	ctaTupleIP, ctaSource4, ctaSource6        = 1, 1, 3
	ctaFilterOrig                             = 1
	ctaFilterSource                    uint32 = 1
	nfgenmsg                                  = 4 // the length of this structure, before the attributes
)

// forget removes the connections that an address began. Otherwise what a box had open when it died would keep its place in the table
// for up to five days (nf_conntrack_tcp_timeout_established), and lead answers to the next box with the address. The kernel may have
// been built without the means; then they time out.
func (t *flowTable) forget(source netip.Addr) {
	if source.Is4() {
		if _, err := t.do(ctDelete, netlink.Acknowledge, unix.AF_INET, from(source)); !errors.Is(err, unix.EINVAL) {
			return
		}
	}
	t.forgetEach(source)
}

// forgetEach lists and deletes, which takes 12 ms for a table of 262144 buckets: for IPv6, since the kernel's filter, as of 6.18, lets
// every IPv6 address through but the one that it was given, and for older kernels, which have the filter for lists only.
func (t *flowTable) forgetEach(source netip.Addr) {
	family, filter := byte(unix.AF_INET6), []byte(nil)
	if source.Is4() {
		family, filter = unix.AF_INET, from(source)
	}
	flows, _ := t.do(ctGet, netlink.Dump, family, filter)
	for _, flow := range flows {
		if began(flow) == source {
			_, _ = t.do(ctDelete, netlink.Acknowledge, family, flow.Data[nfgenmsg:]) // an item of the list says all that it takes
		}
	}
}

// from is the filter for connections that an IPv4 address began.
func from(source netip.Addr) []byte {
	e := netlink.NewAttributeEncoder()
	e.Nested(ctaTupleOrig, func(e *netlink.AttributeEncoder) error {
		e.Nested(ctaTupleIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(ctaSource4, source.AsSlice())
			return nil
		})
		return nil
	})
	e.Nested(ctaFilter, func(e *netlink.AttributeEncoder) error {
		e.Uint32(ctaFilterOrig, ctaFilterSource)
		return nil
	})
	filter, _ := e.Encode() // it fails for attributes of 64 KiB only
	return filter
}

// began is the address that began a connection.
func began(flow netlink.Message) (source netip.Addr) {
	if len(flow.Data) < nfgenmsg {
		return source
	}
	inner := func(attributes []byte, kinds ...uint16) []byte {
		d, err := netlink.NewAttributeDecoder(attributes)
		for err == nil && d.Next() {
			if slices.Contains(kinds, d.Type()) {
				return d.Bytes()
			}
		}
		return nil
	}
	address := inner(inner(inner(flow.Data[nfgenmsg:], ctaTupleOrig), ctaTupleIP), ctaSource4, ctaSource6)
	source, _ = netip.AddrFromSlice(address)
	return source
}

func (t *flowTable) do(what netlink.HeaderType, flags netlink.HeaderFlags, family byte, attributes []byte) ([]netlink.Message, error) {
	// It answers in the same moment; should a kernel not, nobody waits for ever.
	if err := t.conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	return t.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_CTNETLINK<<8 | what, Flags: netlink.Request | flags},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...),
	})
}
