package netpolicy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// perMessage is how many elements go into one message, whose list is an attribute of at most 64 KiB; perBatch how many into one write,
// which must fit into the send buffer that an ordinary user gets (net.core.wmem_max).
const perMessage, perBatch = 400, 1200

var protoNumbers = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// load puts spans into the sets of IPv4 and of IPv6.
func (t *table) load(sets [2]*nftables.Set, proto string, all []Span) error {
	var lists [2][]nftables.SetElement
	for _, s := range all {
		of := 0
		if s.From.Is6() {
			of = 1
		}
		lists[of] = append(lists[of], element(proto, s))
	}
	waiting := 0
	for of, list := range lists {
		for len(list) > 0 {
			n := min(len(list), perMessage)
			if err := t.conn.SetAddElements(sets[of], list[:n]); err != nil {
				return err
			}
			list = list[n:]
			if waiting += n; waiting >= perBatch {
				if err := t.conn.Flush(); err != nil {
					return err
				}
				waiting = 0
			}
		}
	}
	return nil
}

func element(proto string, s Span) nftables.SetElement {
	key := func(address []byte, port uint16) []byte {
		k := append([]byte{protoNumbers[proto], 0, 0, 0}, address...)
		return append(binary.BigEndian.AppendUint16(k, port), 0, 0)
	}
	return nftables.SetElement{Key: key(s.From.AsSlice(), s.FromPort), KeyEnd: key(s.To.AsSlice(), s.ToPort)}
}

// Pin opens an address on ports, in normal form: sorted, none overlapping another. Those that were open before and are not among them
// are closed, in one step.
func (h *Handle) Pin(addr netip.Addr, before, after []Ports) error {
	t := h.table
	t.mu.Lock() // a batch is one writer's
	defer t.mu.Unlock()
	set := t.pin4
	if addr.Is6() {
		set = t.pin6
	}
	change := func(f func(*nftables.Set, []nftables.SetElement) error, list, except []Ports) error {
		for _, p := range list {
			if p.Proto == "udp" && !t.linked || slices.Contains(except, p) {
				continue
			}
			if err := f(set, []nftables.SetElement{element(p.Proto, Span{addr, addr, p.From, p.To})}); err != nil {
				return err
			}
		}
		return nil
	}
	err := errors.Join(change(t.conn.SetDeleteElements, before, after), change(t.conn.SetAddElements, after, before), t.conn.Flush())
	if err != nil {
		return fmt.Errorf("netpolicy: open %s: %w", addr, err)
	}
	return nil
}
