package netpolicy

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// What the log of refused packets begins with where a limit refused them: the fields of a policy.
const (
	spentBytes       = "network.limits.bytes"
	spentConnections = "network.limits.connections"
	spentRate        = "network.limits.rate"
	spentFlows       = "flows open at a time"
)

// flows is how many connections of a link may be open: each takes a place in the host's conntrack table.
const flows = 1024

// limit holds what goes over a link to the run's limits; what goes through skillboxd is counted there.
//
//	quota budget { over BYTES }
//	chain decide { oifname eth0 ct status & dnat == 0 quota name budget jump spent.bytes … }         before all else
//	chain receive { type filter hook input priority filter; iifname eth0 quota name budget drop }
//	chain carry {
//		ct count over 1024 jump spent.flows
//		ct state new ct packets <= 1 jump begin
//		accept
//	}
//	chain begin { limit rate over RATE/second jump spent.rate; limit rate over 1/hour burst CONNECTIONS jump spent.connections }
func (t *table) limit(decide *nftables.Chain, of Limits) (carry []expr.Any) {
	t.conn.AddObj(&nftables.QuotaObj{Table: t.of, Name: "budget", Bytes: uint64(of.Bytes), Over: true})
	over := []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_QUOTA, Name: "budget"}}
	passed := []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: native32(ctStatusDNAT), Xor: native32(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: native32(0)},
	}
	t.add(decide, throughLink(expr.MetaKeyOIFNAME), passed, over, t.refuse(spentBytes))
	receive := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "receive", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	t.add(receive, throughLink(expr.MetaKeyIIFNAME), over, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})

	begin := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "begin"})
	more := func(rate uint64, unit expr.LimitTime, burst int64) []expr.Any {
		return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: rate, Unit: unit, Burst: uint32(burst), Over: true}}
	}
	t.add(begin, more(uint64(of.Rate), expr.LimitTimeSecond, of.Rate), t.refuse(spentRate))
	t.add(begin, more(1, expr.LimitTimeHour, of.Connections), t.refuse(spentConnections))

	chain := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: "carry"})
	t.add(chain, []expr.Any{&expr.Connlimit{Count: flows, Flags: expr.NFT_CONNLIMIT_F_INV}}, t.refuse(spentFlows))
	// Without counters, which not every container can switch on, it is 0 for each packet that nobody has answered yet.
	for _, packets := range []uint64{0, 1} {
		t.add(chain, state(expr.CtStateBitNEW), []expr.Any{
			&expr.Ct{Key: expr.CtKeyPKTS, Register: reg1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: nativeEndian.AppendUint64(nil, packets)},
		}, jump("begin"))
	}
	t.add(chain, accept())
	return jump("carry")
}

const ctStatusDNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h

// throughLink matches packets by the interface that they come or go by.
func throughLink(by expr.MetaKey) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, boxInterface)
	return []expr.Any{&expr.Meta{Key: by, Register: reg1}, &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: name}}
}

// refuse makes a chain, once, that logs with a reason and rejects; it returns the jump there.
func (t *table) refuse(why string) []expr.Any {
	name := "refuse"
	if why != "" {
		name = "spent." + why
	}
	if t.refusing[name] {
		return jump(name)
	}
	t.refusing[name] = true
	chain := t.conn.AddChain(&nftables.Chain{Table: t.of, Name: name})
	t.add(chain, []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: refusalRate, Unit: expr.LimitTimeSecond, Burst: refusalRate},
		&expr.Log{
			Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN | 1<<unix.NFTA_LOG_QTHRESHOLD | 1<<unix.NFTA_LOG_PREFIX,
			Group: refusals, Snaplen: refusedBytes, QThreshold: 1, Data: []byte(why),
		},
	})
	t.add(chain, jump("reject"))
	return jump(name)
}
