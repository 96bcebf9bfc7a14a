package main

import "golang.org/x/sys/unix"

var _ = register(map[string]func([]string) (any, error){"rtnetlink": rtnetlink})

// rtnetlink tries to change its own network namespace: links, addresses, routes, neighbours, rules, nftables. The link is loopback, or
// one that the capture may have made.
func rtnetlink([]string) (any, error) {
	const ask = unix.NLM_F_REQUEST | unix.NLM_F_ACK
	const create = ask | unix.NLM_F_CREATE
	link := func(index, flags uint32) []byte {
		head := append(make([]byte, 4), native32(index)...)
		return append(append(head, native32(flags)...), native32(unix.IFF_UP)...)
	}
	attribute := func(kind uint16, value ...byte) []byte {
		return append(append(native16(uint16(4+len(value))), native16(kind)...), value...)
	}
	addr := append([]byte{unix.AF_INET, 24, 0, 0, 1, 0, 0, 0}, attribute(unix.IFA_LOCAL, 11, 22, 33, 9)...)
	route := append([]byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, attribute(unix.RTA_OIF, 1, 0, 0, 0)...)
	neighbour := append([]byte{unix.AF_INET, 0, 0, 0, 1, 0, 0, 0, unix.NUD_PERMANENT, 0, 0, 0}, attribute(unix.NDA_DST, 11, 22, 33, 9)...)
	rule := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.FR_ACT_TO_TBL, 0, 0, 0, 0}
	const table = unix.NFNL_SUBSYS_NFTABLES << 8
	generic := []byte{unix.AF_UNSPEC, 0, 0, 0}
	got := netfilterTable()
	for _, c := range []struct {
		name     string
		protocol int
		message  []byte
	}{
		{"set loopback down", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, ask, link(1, 0))},
		{"set the second link down", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, ask, link(2, 0))},
		{"set loopback up", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, ask, link(1, unix.IFF_UP))},
		{"delete the second link", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_DELLINK, ask, link(2, 0))},
		{"add an address", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWADDR, create, addr)},
		{"delete an address", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_DELADDR, ask, addr)},
		{"add a route", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWROUTE, create, route)},
		{"delete a route", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_DELROUTE, ask, route)},
		{"add a neighbour", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWNEIGH, create, neighbour)},
		{"add a rule", unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWRULE, create, rule)},
		{"delete all tables of nftables", unix.NETLINK_NETFILTER, netlinkMessage(table|unix.NFT_MSG_DELTABLE, ask, generic)},
		{"read the tables of nftables", unix.NETLINK_NETFILTER, netlinkMessage(table|unix.NFT_MSG_GETTABLE, ask|unix.NLM_F_DUMP, generic)},
	} {
		got[c.name] = answer(netlinkAsk(c.protocol, c.message))
	}
	return got, nil
}
