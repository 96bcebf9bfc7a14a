package netpolicy

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skillbox/netpolicy/floor"
)

var nativeEndian = binary.NativeEndian

const (
	// proxyPort is where redirected connections arrive, and dnsPort where names are asked for. A box has no capability to bind ports
	// below 1024, so none of its own programs can be in the way.
	proxyPort, dnsPort = 1, 53
	// refusals is the group of nfnetlink_log that tells of refused packets, refusalRate how many it tells of in a second: a skill that
	// floods would otherwise keep skillboxd busy.
	refusals, refusalRate = 1, 500
)

// table is what a box's own namespace enforces. It belongs to skillboxd's user namespace: no capability of the box's holds over it.
//
//	chain decide { type filter hook output priority -150    after conntrack, before nat
//		ct state established,related accept
//		ip daddr 127.0.0.0/8 tcp dport 1 jump refuse                          the listener: only what is redirected there; also ::1
//		ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//		ip daddr 192.0.0.8 jump reject; ip6 daddr 100::8 jump reject
//		meta l4proto . ip daddr . th dport @deny4 jump refuse                 also IPv4 addresses within IPv6 ones
//		meta l4proto . ip daddr . th dport @allow4 accept                     with a link, UDP too: jump carry
//		meta l4proto . ip daddr . th dport @pin4 accept
//		jump refuse
//	}
//	chain divert { type nat hook output priority -100
//		ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//		meta l4proto . ip daddr . th dport @allow4 accept                     with a link only
//		meta l4proto tcp redirect to :1
//	}
//	chain refuse { limit rate 500/second log group 1; jump reject }
//	chain reject { meta l4proto tcp reject with tcp reset; reject with icmpx admin-prohibited }
type table struct {
	mu          sync.Mutex
	linked      [2]bool
	conn        *nftables.Conn
	of          *nftables.Table
	deny, allow spanSets
	pins        [2]*nftables.Set // of IPv4 and of IPv6
	refusing    map[string]bool  // chains that are there
	sets        uint32           // how many there are, to number them
	waiting     int              // elements that were not sent yet
}

var (
	key4 = nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeIPAddr, nftables.TypeInetService)
	key6 = nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeIP6Addr, nftables.TypeInetService)
)

// inetFamilies are those of packets, in the order in which there are two of anything.
var inetFamilies = [2]byte{ipv4, ipv6}

// newTable puts the rules in force in the calling thread's network namespace. In families with a link, cidrs are reached through it by the
// kernel alone, and otherwise through skillboxd.
func newTable(rules *Ruleset, linked [2]bool, of Limits) (*table, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("netpolicy: open nftables: %w", err)
	}
	t := &table{conn: conn, linked: linked, refusing: map[string]bool{}}
	if err := t.fill(rules, of); err != nil {
		conn.CloseLasting()
		return nil, fmt.Errorf("netpolicy: load nftables rules: %w (the kernel needs nf_tables with nat, redir, reject, limit and log: see `skillbox doctor`)", err)
	}
	return t, nil
}

func (t *table) Close() error { return t.conn.CloseLasting() }

func (t *table) fill(rules *Ruleset, of Limits) error {
	t.of = t.conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "skillbox"})
	for i, key := range []nftables.SetDatatype{key4, key6} {
		t.pins[i] = &nftables.Set{Table: t.of, Name: []string{"pin4", "pin6"}[i], KeyType: key, Interval: true, Concatenation: true}
		if err := t.addSet(t.pins[i]); err != nil {
			return err
		}
	}
	var err error
	if t.deny, err = t.newSpanSets("deny", rules.deny.rules); err != nil {
		return err
	}
	if t.allow, err = t.newSpanSets("allow", rules.egress.rules); err != nil {
		return err
	}
	t.decide(of)
	t.divert()
	return t.conn.Flush()
}

// addSet numbers a set itself: google/nftables counts for all its users, without a lock.
func (t *table) addSet(s *nftables.Set) error {
	t.sets++
	s.ID = t.sets
	return t.conn.AddSet(s, nil)
}

// decide adds the chains that every packet passes which a program of the box sends.
func (t *table) decide(of Limits) {
	t.rejecting()
	refuse := t.refuse("")

	priority := nftables.ChainPriorityMangle
	decide := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "decide", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: priority})
	var carry []expr.Any
	if t.linked[0] {
		carry = t.limit(decide, of)
	}
	t.add(decide, established(), accept())
	t.loopback(decide, refuse)
	for _, of := range inetFamilies {
		t.addEach(decide, nil, t.deny.matches(of, 0, false), refuse)
	}
	for _, e := range floor.Embeddings() {
		first := e.In.Addr().AsSlice()[:e.In.Bits()/8]
		t.addEach(decide, toPrefix(ipv6, first...), t.deny.matches(ipv6, uint32(e.At), e.Inverted), refuse)
	}
	for i, of := range inetFamilies {
		verdict := accept()
		if t.linked[i] {
			verdict = carry
			t.add(decide, transport(unix.IPPROTO_UDP), destination(of, t.pins[i], 0, false), verdict)
		}
		t.addEach(decide, nil, t.allow.matches(of, 0, false), verdict)
		t.add(decide, destination(of, t.pins[i], 0, false), accept())
	}
	t.add(decide, refuse)
}

// rejecting adds the chain that tells a sender at once.
func (t *table) rejecting() {
	reject := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "reject"})
	t.add(reject, transport(unix.IPPROTO_TCP), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}})
	t.add(reject, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
}

// loopback lets a box's programs talk to one another, and to its resolver.
func (t *table) loopback(decide *nftables.Chain, refuse []expr.Any) {
	for _, loopback := range toLoopback() {
		t.add(decide, loopback, transport(unix.IPPROTO_TCP), toPort(proxyPort), refuse)
		t.add(decide, loopback, accept())
	}
	// What init tries from inside is never a skill's doing, so it is not logged.
	for _, never := range NeverReached() {
		of := byte(ipv4)
		if never.Is6() {
			of = ipv6
		}
		t.add(decide, toPrefix(of, never.AsSlice()...), jump("reject"))
	}
}

// divert adds the chain that sends TCP to skillboxd. What arrives there was allowed.
func (t *table) divert() {
	divert := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "divert", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	for _, loopback := range toLoopback() {
		t.add(divert, loopback, accept())
	}
	for i, of := range inetFamilies {
		if t.linked[i] {
			t.addEach(divert, nil, t.allow.matches(of, 0, false), accept())
		}
	}
	t.add(divert, transport(unix.IPPROTO_TCP), redirect(proxyPort))
}

func (t *table) add(chain *nftables.Chain, parts ...[]expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: t.of, Chain: chain, Exprs: rule(parts...)})
}

// addEach adds a rule for each way to match.
func (t *table) addEach(chain *nftables.Chain, before []expr.Any, matches [][]expr.Any, after ...[]expr.Any) {
	for _, m := range matches {
		t.add(chain, before, m, rule(after...))
	}
}
