package netpolicy

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// heardBytes is how much of a packet is told of that a sinkhole swallows: its headers, and 4 KiB of what it says.
const heardBytes = 40 + 8 + 4<<10

// newSinkhole puts rules in force in the calling thread's network namespace by which whatever leaves its loopback ends here.
//
//	chain decide { type filter hook output priority -150    after conntrack, before nat
//		ct state established,related accept
//		ip daddr 127.0.0.0/8 tcp dport 1 jump refuse                          the listener: only what is redirected there; also ::1
//		ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//		ip daddr 192.0.0.8 jump reject; ip6 daddr 100::8 jump reject
//		meta l4proto tcp accept
//		meta l4proto udp jump hear
//		jump refuse
//	}
//	chain divert { type nat hook output priority -100
//		ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//		meta l4proto tcp redirect to :1
//		meta l4proto udp udp dport 53 redirect to :53                         whatever server a program asks, it asks us
//	}
//	chain swallow { type filter hook input priority 0
//		ct state established,related accept
//		ip daddr 127.0.0.0/8 accept; ip6 daddr ::1 accept
//		meta l4proto udp drop                                                 without a word, as a server that says nothing
//	}
//	chain hear { limit rate 500/second log group 1 snaplen 4144; accept }
//	chain refuse { … }; chain reject { … }                                        as in a table of rules
func newSinkhole() (*table, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("netpolicy: open nftables: %w", err)
	}
	t := &table{conn: conn, refusing: map[string]bool{}}
	t.of = conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "skillbox"})
	t.hear()
	t.sink()
	t.swallow()
	if err := conn.Flush(); err != nil {
		conn.CloseLasting()
		return nil, fmt.Errorf("netpolicy: load nftables rules of a sinkhole: %w (the kernel needs nf_tables with nat, redir, reject, limit and log: see `skillbox doctor`)", err)
	}
	return t, nil
}

// hear adds the chain that every packet passes which a program of the box sends.
func (t *table) hear() {
	t.rejecting()
	refuse := t.refuse("")
	hear := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "hear"})
	t.add(hear, []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: refusalRate, Unit: expr.LimitTimeSecond, Burst: refusalRate},
		&expr.Log{
			Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN | 1<<unix.NFTA_LOG_QTHRESHOLD | 1<<unix.NFTA_LOG_PREFIX,
			Group: refusals, Snaplen: heardBytes, QThreshold: 1, Data: []byte(heard),
		},
	})
	t.add(hear, accept())
	decide := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "decide", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle})
	t.add(decide, established(), accept())
	t.loopback(decide, refuse)
	t.add(decide, transport(unix.IPPROTO_TCP), accept())
	t.add(decide, transport(unix.IPPROTO_UDP), jump("hear"))
	t.add(decide, refuse)
}

// sink adds the chain that leads to us.
func (t *table) sink() {
	divert := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "divert", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	for _, loopback := range toLoopback() {
		t.add(divert, loopback, accept())
	}
	t.add(divert, transport(unix.IPPROTO_TCP), redirect(proxyPort))
	t.add(divert, transport(unix.IPPROTO_UDP), toPort(dnsPort), redirect(dnsPort))
}

// swallow adds the chain in which datagrams end. Had their sender been told that nobody is there, it would give up too soon.
func (t *table) swallow() {
	swallow := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "swallow", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	t.add(swallow, established(), accept())
	for _, loopback := range toLoopback() {
		t.add(swallow, loopback, accept())
	}
	t.add(swallow, transport(unix.IPPROTO_UDP), []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
}
