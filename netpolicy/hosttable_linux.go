package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// hostTable is what skillboxd's own network namespace enforces on the links of all boxes, of every skillboxd there is. What is no
// link's passes untouched.
//
//	set links { type ifname }
//	map boxes { type ifname : verdict }                    a link to the chain of its box
//	chain arrive { type filter hook prerouting priority -150; iifname vmap @boxes }       after conntrack
//	chain sb0123456789ab {                                 one for each box
//		ether saddr != 02:73:62:01:00:2a drop
//		ip saddr != 198.18.0.85 drop                       that family's packets only
//		meta nfproto ipv4 counter                          without any, no connection need be forgotten
//		ip6 saddr != fd5b:c7e:91a4:2a::3 drop              without IPv6: all of them
//		meta nfproto ipv6 counter
//		ct state established,related accept                what follows was looked at once
//		fib daddr type local drop                          before anybody's DNAT of an address of the host
//		ip daddr { opened by cidrs rules } accept
//		goto floor
//	}
//	chain floor { ip daddr @floor4 drop; ip6 daddr @floor6 drop }
//	chain deliver { type filter hook input priority -10; iifname @links drop }
//	chain pass { type filter hook forward priority -10; iifname @links goto out; oifname @links goto in }
//	chain out { oifname @links drop; ct state invalid,untracked drop }
//	chain in { ct state established,related accept; drop }
//	chain send { type filter hook output priority -10; oifname @links goto answer }
//	chain answer { ct state established,related accept; icmp and icmpv6: errors accept; drop }
//	chain leave { type nat hook postrouting priority 100; iifname @links masquerade }
type hostTable struct {
	mu   sync.Mutex // a batch is one writer's
	conn *nftables.Conn
}

// The parts of the table. Sets carry their numbers, which nftables would otherwise take from a counter that its Conns share unlocked.
var (
	hostOf     = &nftables.Table{Family: nftables.TableFamilyINet, Name: "skillbox"}
	hostLinks  = &nftables.Set{Table: hostOf, ID: 1, Name: "links", KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian}
	hostBoxes  = &nftables.Set{Table: hostOf, ID: 2, Name: "boxes", KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian, IsMap: true, DataType: nftables.TypeVerdict}
	hostFloor4 = &nftables.Set{Table: hostOf, ID: 3, Name: "floor4", KeyType: nftables.TypeIPAddr, Interval: true}
	hostFloor6 = &nftables.Set{Table: hostOf, ID: 4, Name: "floor6", KeyType: nftables.TypeIP6Addr, Interval: true}
	hostFloor  = &nftables.Chain{Table: hostOf, Name: "floor"}
)

func openHostTable() (*hostTable, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("netpolicy: open nftables: %w", err)
	}
	return &hostTable{conn: conn}, nil
}

func (t *hostTable) Close() error { return t.conn.CloseLasting() }

// add puts a box's rules in force, in one step with all of the table if it is the first box's.
func (t *hostTable) add(l *link, opened []netip.Prefix) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for range tries {
		exists := t.exists()
		if !exists {
			t.conn.CreateTable(hostOf)
			if err := t.fill(); err != nil {
				return fmt.Errorf("netpolicy: %w", err)
			}
		}
		if err := t.box(l, opened); err != nil {
			return fmt.Errorf("netpolicy: %w", err)
		}
		err = t.conn.Flush()
		// The last of the others has removed the table meanwhile, or the first has made it. By now the next may have made or removed it
		// again: to look would tell nothing.
		if exists && errors.Is(err, unix.ENOENT) || !exists && errors.Is(err, unix.EEXIST) {
			continue
		}
		break
	}
	if err != nil {
		return fmt.Errorf("netpolicy: load nftables rules of %s: %w", l.Name, err)
	}
	return nil
}

// tries is how often others may come in between.
const tries = 100

func (t *hostTable) exists() bool {
	_, err := t.conn.ListTableOfFamily(hostOf.Name, hostOf.Family)
	return err == nil
}

// box adds the rules of one box to the batch.
func (t *hostTable) box(l *link, opened []netip.Prefix) error {
	chain := t.conn.AddChain(&nftables.Chain{Table: hostOf, Name: l.Name})
	t.rule(chain, notFrom(expr.PayloadBaseLLHeader, 6, l.boxMAC), drop())
	t.rule(chain, family(ipv4), notFrom(expr.PayloadBaseNetworkHeader, 12, l.Box4.AsSlice()), drop())
	t.rule(chain, family(ipv4), []expr.Any{&expr.Counter{}})
	if l.Box6.IsValid() {
		t.rule(chain, family(ipv6), notFrom(expr.PayloadBaseNetworkHeader, 8, l.Box6.AsSlice()), drop())
		t.rule(chain, family(ipv6), []expr.Any{&expr.Counter{}})
	} else {
		t.rule(chain, family(ipv6), drop())
	}
	t.rule(chain, established(), accept())
	t.rule(chain, toLocal(), drop())
	ranges := make([]addrRange, len(opened))
	for i, p := range opened {
		ranges[i] = rangeOf(p)
	}
	id := hostFloor6.ID
	for part := range slices.Chunk(union(ranges), perMessage) {
		cut := slices.IndexFunc(part, func(r addrRange) bool { return r.from.Is6() })
		if cut < 0 {
			cut = len(part)
		}
		for _, of := range []struct {
			family byte
			key    nftables.SetDatatype
			ranges []addrRange
		}{{ipv4, nftables.TypeIPAddr, part[:cut]}, {ipv6, nftables.TypeIP6Addr, part[cut:]}} {
			if len(of.ranges) == 0 {
				continue
			}
			id++
			set := &nftables.Set{Table: hostOf, ID: id, Name: "__set%d", Anonymous: true, Constant: true, Interval: true, KeyType: of.key}
			if err := t.conn.AddSet(set, intervals(of.ranges)); err != nil {
				return err
			}
			t.rule(chain, toSet(of.family, set), accept())
		}
	}
	t.rule(chain, continueAt(hostFloor))
	return errors.Join(
		t.conn.SetAddElements(hostLinks, []nftables.SetElement{{Key: ifname(l.Name), Comment: strconv.Itoa(l.n)}}),
		t.conn.SetAddElements(hostBoxes, []nftables.SetElement{{Key: ifname(l.Name), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: l.Name}}}),
	)
}

func (t *hostTable) rule(chain *nftables.Chain, parts ...[]expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: hostOf, Chain: chain, Exprs: rule(parts...)})
}
