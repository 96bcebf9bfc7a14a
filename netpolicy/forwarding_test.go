//go:build linux

package netpolicy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestAFilterInTheWayIsNamedWithItsRemedy(t *testing.T) {
	for _, c := range []struct {
		f         filter
		who, hint string
	}{
		{filter{program: "iptables", chain: "FORWARD", docker: true}, "Docker's chain FORWARD of iptables", `iptables -I DOCKER-USER -i sb+ -j ACCEPT
iptables -I DOCKER-USER -o sb+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`},
		{filter{program: "ip6tables-legacy", chain: "FORWARD", in: true}, "chain FORWARD of ip6tables-legacy", "ip6tables-legacy -I FORWARD -o sb+ -m"},
		{filter{program: "iptables", chain: "FORWARD", ufw: true, back: true}, "ufw", "ufw route allow in on sb+"},
		{filter{family: "inet", table: "firewalld", chain: "filter_FORWARD", back: true}, "firewalld", "firewall-cmd --permanent --zone=trusted --add-interface=sb+\n"},
		{filter{family: "inet", table: "fw", chain: "fwd"}, "chain fwd of nftables' table inet fw", `nft insert rule inet fw fwd iifname "sb*" accept
nft insert rule inet fw fwd oifname "sb*" ct state established,related accept`},
	} {
		var no *NoForwarding
		if err := c.f.refusal(); !errors.As(err, &no) || !strings.HasPrefix(no.Message, c.who+" drops what is forwarded") || !strings.Contains(no.Hint, c.hint) {
			t.Errorf("%+v: %+v", c.f, no)
		}
	}
	if err := (&filter{program: "iptables", chain: "FORWARD", in: true, back: true}).refusal(); err != nil {
		t.Error(err)
	}
}

// Each firewall is asked for by its own program, and its remedy is run as it stands.
func TestFirewallsAreFoundAndTheirRemediesHelp(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	box, _ := w.box()
	tried := 0
	for _, c := range []struct{ name, up, down string }{
		{"Docker", "iptables-nft -P FORWARD DROP; iptables-nft -N DOCKER-USER; iptables-nft -A FORWARD -j DOCKER-USER; iptables-nft -A FORWARD -i docker0 -j ACCEPT", "iptables-nft -P FORWARD ACCEPT; iptables-nft -F FORWARD"},
		{"iptables", "iptables-legacy -P FORWARD DROP; iptables-legacy -A FORWARD -i eth9 -j ACCEPT", "iptables-legacy -P FORWARD ACCEPT"},
		{"Docker of old", "iptables-legacy -P FORWARD DROP; iptables-legacy -N DOCKER-USER; iptables-legacy -F FORWARD; iptables-legacy -A FORWARD -j DOCKER-USER", "iptables-legacy -P FORWARD ACCEPT"},
		{"ip6tables", "ip6tables-nft -P FORWARD DROP", "ip6tables-nft -P FORWARD ACCEPT"},
		{"ip6tables of old", "ip6tables-legacy -P FORWARD DROP", "ip6tables-legacy -P FORWARD ACCEPT"},
	} {
		program, _, _ := strings.Cut(c.up, " ")
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s: %v", c.name, err)
			continue
		}
		if out, err := exec.Command("sh", "-ec", c.up).CombinedOutput(); err != nil {
			t.Logf("%s: %s", c.name, out)
			continue
		}
		tried++
		look, other, host := w.links.forwarding, w.links.forwarding6, serverAddr4
		if strings.HasPrefix(program, "ip6") {
			look, other, host = other, look, serverAddr6
		}
		var no *NoForwarding
		if err := look(); !errors.As(err, &no) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := other(); err != nil {
			t.Errorf("%s, but for the other family: %v", c.name, err)
		}
		if _, err := w.ask(box, hurry, "tcp", "", host, server.port); err == nil {
			t.Errorf("%s: does not drop, so that the test tests nothing", c.name)
		}
		remedy := strings.NewReplacer("iptables -I", "iptables-nft -I", "ip6tables -I", "ip6tables-nft -I").Replace(no.Hint)
		if out, err := exec.Command("sh", "-ec", remedy).CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %s", c.name, no.Hint, out)
		}
		if err := look(); err != nil {
			t.Errorf("%s after %s: %v", c.name, no.Hint, err)
		}
		if got, err := w.ask(box, patience, "tcp", "", host, server.port); err != nil {
			t.Errorf("%s after %s: %q, %v", c.name, no.Hint, got, err)
		}
		try(t, exec.Command("sh", "-ec", c.down).Run())
	}
	if tried == 0 {
		t.Skip("no iptables here")
	}
}

func TestAForeignTableThatDropsIsFoundAndLeftAlone(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	conn, err := nftables.New()
	try(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "fw"})
	chain := conn.AddChain(&nftables.Chain{Table: table, Name: "fwd", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(established(), accept())})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: drop()})
	try(t, conn.Flush())
	before := ruleset(t, conn)
	for _, look := range []func() error{w.links.forwarding, w.links.forwarding6} {
		var no *NoForwarding
		if err := look(); !errors.As(err, &no) || !strings.Contains(no.Error(), "chain fwd of nftables' table inet fw drops") {
			t.Error(err)
		}
	}
	_, l := w.box()
	if during := ruleset(t, conn); during != before {
		t.Errorf("before:\n%s\nwith a link:\n%s", before, during)
	}
	try(t, l.Close())
	if after := ruleset(t, conn); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// ruleset is all of nftables that is not ours.
func ruleset(t *testing.T, conn *nftables.Conn) string {
	t.Helper()
	var b strings.Builder
	chains, err := conn.ListChains()
	try(t, err)
	for _, c := range chains {
		if c.Table.Name == hostOf.Name {
			continue
		}
		fmt.Fprintf(&b, "%+v %s %v %v\n", *c.Table, c.Name, c.Hooknum == nil, c.Type)
		rules, err := conn.GetRules(c.Table, c)
		try(t, err)
		for _, r := range rules {
			fmt.Fprintf(&b, "\t%d", r.Handle)
			for _, e := range r.Exprs {
				fmt.Fprintf(&b, " %T%+v", e, e)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestAnAdvertisedDefaultRouteIsNotGivenUp(t *testing.T) {
	if !hosted(t) {
		return
	}
	up := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", TxQLen: -1}, PeerName: "up0", PeerNamespace: netlink.NsFd(namespace(t).Fd()), PeerTxQLen: -1}
	try(t, netlink.LinkAdd(up))
	ls, err := openLinks()
	try(t, err)
	defer ls.Close()
	reason := func(want string) {
		t.Helper()
		var no *NoForwarding
		if err := ls.forwarding6(); !errors.As(err, &no) || !strings.Contains(no.Message, want) {
			t.Errorf("%v, want %s", err, want)
		}
		if on, _ := setting("net/ipv6/conf/all/forwarding"); on != "0" {
			t.Error("it is on nevertheless")
		}
	}
	reason("no IPv6 address")
	addresses(t, hostAddr6+"/64")
	try(t, netlink.RouteAdd(&netlink.Route{Dst: ipNet(prefixes("::/0")[0]), Gw: net.ParseIP(serverAddr6), Protocol: unix.RTPROT_RA}))
	reason("comes by router advertisements on up0")
	try(t, os.WriteFile("/proc/sys/net/ipv6/conf/up0/accept_ra", []byte("2"), 0))
	try(t, errors.Join(ls.forwarding(), ls.forwarding6()))
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if on, err := setting(name); on != "1" {
			t.Errorf("%s is %q: %v", name, on, err)
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Protocol: unix.RTPROT_RA}, netlink.RT_FILTER_PROTOCOL)
	if err != nil || len(routes) != 1 {
		t.Errorf("%v: %v", routes, err)
	}
}
