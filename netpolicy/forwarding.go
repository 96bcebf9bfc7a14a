package netpolicy

import "fmt"

// NoForwarding says why packets of links are not passed on by the host, and what would help.
type NoForwarding struct {
	Message string
	Hint    string // commands to run, one to a line
}

func (e *NoForwarding) Error() string { return "netpolicy: " + e.Message }

// filter is somebody's chain that drops what is forwarded unless a rule lets it through.
type filter struct {
	program string // "iptables" or "ip6tables" if it made the chain, also "iptables-legacy"; "" for nftables' own
	family  string // of nftables: "ip", "ip6", "inet"
	table   string
	chain   string
	docker  bool // it has Docker's chain for rules of the user
	ufw     bool
	in      bool // a rule lets packets from links through
	back    bool // and one the answers to them
}

// refusal is how the filter is in the way; nil is not.
func (f *filter) refusal() error {
	if f.in && f.back {
		return nil
	}
	const allow, answers = "-i " + linkPrefix + "+ -j ACCEPT", "-o " + linkPrefix + "+ -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
	drops := fmt.Sprintf("drops what is forwarded from and to interfaces called %s*", linkPrefix)
	switch {
	case f.table == "firewalld":
		return &NoForwarding{"firewalld " + drops, "firewall-cmd --permanent --zone=trusted --add-interface=" + linkPrefix + "+\nfirewall-cmd --reload"}
	case f.ufw:
		return &NoForwarding{"ufw " + drops, "ufw route allow in on " + linkPrefix + "+"}
	case f.program != "":
		chain, who := f.chain, "chain "+f.chain+" of "+f.program
		if f.docker {
			chain, who = "DOCKER-USER", "Docker's "+who
		}
		return &NoForwarding{who + " " + drops, fmt.Sprintf("%[1]s -I %[2]s %[3]s\n%[1]s -I %[2]s %[4]s", f.program, chain, allow, answers)}
	}
	at := fmt.Sprintf("nft insert rule %s %s %s", f.family, f.table, f.chain)
	return &NoForwarding{
		fmt.Sprintf("chain %s of nftables' table %s %s %s", f.chain, f.family, f.table, drops),
		fmt.Sprintf("%s iifname %q accept\n%s oifname %q ct state established,related accept", at, linkPrefix+"*", at, linkPrefix+"*"),
	}
}

// linkPrefix is what the names of hosts' ends begin with, by which filters of others can let them through.
const linkPrefix = "sb"

// ours says that a pattern of an interface's name, given by what the name begins with, is for links.
func ours(begins string) bool {
	return begins != "" && len(begins) <= len(linkPrefix) && linkPrefix[:len(begins)] == begins
}
