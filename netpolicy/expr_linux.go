package netpolicy

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The words of nft(8) in the kernel's terms. Register 1 takes what one comparison looks at; a look-up's key begins in the same place,
// which as 32-bit registers is number 8.
const (
	reg1  = unix.NFT_REG_1
	reg32 = unix.NFT_REG32_00
)

// Families of packets in an inet table.
const (
	ipv4 = unix.NFPROTO_IPV4
	ipv6 = unix.NFPROTO_IPV6
)

// rule joins the parts of a rule.
func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func equals(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: data} }

// family matches packets of one family: meta nfproto.
func family(of byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg1}, equals(of)}
}

// transport matches one protocol: meta l4proto.
func transport(proto byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1}, equals(proto)}
}

// toPort matches one destination port.
func toPort(port uint16) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, equals(byte(port>>8), byte(port))}
}

// addressAt says where the destination lies in a header, and how long it is.
func addressAt(of byte) (offset, length uint32) {
	if of == ipv4 {
		return 16, 4
	}
	return 24, 16
}

// toPrefix matches destinations that begin with these bytes.
func toPrefix(of byte, first ...byte) []expr.Any {
	offset, _ := addressAt(of)
	return rule(family(of), []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(len(first))}, equals(first...),
	})
}

// toLoopback are the two rules' beginnings that match the namespace's own loopback.
func toLoopback() [][]expr.Any {
	one := make([]byte, 16)
	one[15] = 1
	return [][]expr.Any{toPrefix(ipv4, 127), toPrefix(ipv6, one...)}
}

// established matches what belongs to a connection that was decided on: ct state established,related.
func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: reg1},
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: native32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED), Xor: native32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: native32(0)},
	}
}

// destination matches protocol . address . port of packets of one family against a set. Where at is not zero, then the address is the
// IPv4 address that stands there within an IPv6 one.
func destination(of byte, set *nftables.Set, at uint32, inverted bool) []expr.Any {
	address, length := loadAddress(of, at, inverted, reg32+1)
	return rule(family(of), []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32}}, address, []expr.Any{
		&expr.Payload{DestRegister: reg32 + 1 + length/4, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: reg32, SetName: set.Name, SetID: set.ID},
	})
}

// addressIn matches addresses against a set, on the ports that go with it.
func addressIn(of byte, l largeSet, at uint32, inverted bool) []expr.Any {
	address, _ := loadAddress(of, at, inverted, reg1)
	return rule(family(of), transport(protoNumbers[l.ports.Proto]), []expr.Any{
		&expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: reg1, Data: []byte{byte(l.ports.From >> 8), byte(l.ports.From)}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: reg1, Data: []byte{byte(l.ports.To >> 8), byte(l.ports.To)}},
	}, address, []expr.Any{&expr.Lookup{SourceRegister: reg1, SetName: l.set.Name, SetID: l.set.ID}})
}

func loadAddress(of byte, at uint32, inverted bool, register uint32) (parts []expr.Any, length uint32) {
	offset, length := addressAt(of)
	if at != 0 {
		offset, length = offset+at, 4
	}
	parts = []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
	if inverted {
		ones := []byte{255, 255, 255, 255}
		parts = append(parts, &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: ones, Xor: ones})
	}
	return parts, length
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// redirect sends a packet to a port of the namespace's own loopback, 127.0.0.1 or ::1 in the output hook.
func redirect(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg1, Data: []byte{byte(port >> 8), byte(port)}},
		&expr.Redir{RegisterProtoMin: reg1},
	}
}

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

// native32 is a number as the kernel's registers hold it.
func native32(n uint32) []byte { return nativeEndian.AppendUint32(nil, n) }
