package policy

import (
	"strings"
	"testing"
)

func TestNamesHaveOneNormalForm(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM": "example.com", "example.com.": "example.com", "a-b.c": "a-b.c", "r3---sn-x.googlevideo.com": "r3---sn-x.googlevideo.com",
		"bücher.de": "xn--bcher-kva.de", "BÜCHER。de": "xn--bcher-kva.de", "XN--BCHER-KVA.de": "xn--bcher-kva.de", "faß.de": "xn--fa-hia.de",
		"localhost": "localhost", "1.example": "1.example", "3com.com": "3com.com", "0x.example": "0x.example", "ｅxample.com": "example.com",
	} {
		if got, err := NormalizeName(in); err != nil || got != want {
			t.Errorf("%q is %q, %v", in, got, err)
		}
	}
	long := strings.Repeat("a", 63)
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a.b..", "-a.b", "a-.b", "a_b.c", "_dmarc.a", "a b", "a\x00.b", "a\n", "a.b\x7f", "a/b", "a:443", "http://a.b", "[::1]", "::1",
		"127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "1.2.3.4.", "a.0x1f", "a.7", "0x", "１２７.１", "①.②", "*", "*.a", "a.*",
		"xn--a.de", "xn--", "a\u200d.de", "a\u202e.de", "%61.com", "a@b", long + "a.com", strings.Repeat("a.", 127) + "aa", strings.Repeat("ü", 60) + ".de",
	} {
		if got, err := NormalizeName(in); err == nil {
			t.Errorf("%q is accepted as %q", in, got)
		}
	}
	if _, err := NormalizeName(strings.Repeat(long+".", 3) + strings.Repeat("a", 61)); err != nil {
		t.Errorf("253 bytes are refused: %v", err)
	}
}

func TestAWildcardIsAnyDepthBelowAndNotTheNameItself(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.x.org", "a.x.org", true},
		{"*.x.org", "a.b.c.x.org", true},
		{"*.x.org", "x.org", false},
		{"*.x.org", "ax.org", false},
		{"*.x.org", ".x.org", false},
		{"x.org", "x.org", true},
		{"x.org", "a.x.org", false},
		{"*", "anything", true},
	} {
		if MatchName(c.pattern, c.name) != c.want {
			t.Errorf("%s matching %s is not %v", c.pattern, c.name, c.want)
		}
	}
}

func TestPortsHaveDefaultsOnlyForNames(t *testing.T) {
	p := parse(t, body("network:\n  egress: [{domains: [a.org]}]\n  deny: [{cidrs: [10.0.0.0/8]}, {domains: [\"*\"]}]"))
	if got := p.Network.Egress[0].String(); got != "{domains: [a.org], ports: [443]}" {
		t.Error(got)
	}
	if len(p.Network.Deny[0].Ports) != 0 {
		t.Error("a deny rule without ports got some")
	}
	refused(t, body("network: {egress: [{cidrs: [10.0.0.0/8]}]}"), "2:20: network.egress[0]: cidrs need ports (add ports: [443], for example)")
	for _, port := range []string{"0", "65536", "-1", "080", `"80-70"`, `"80-"`, `"80/icmp"`, `"80 "`, `"http"`, "1.5", "0x50", `"1-2-3"`, "null", "[80]", `""`} {
		refused(t, body("network: {egress: [{domains: [a.org], ports: ["+port+"]}]}"), "2:47: network.egress[0].ports[0]: ")
	}
	for _, rule := range []string{"{ports: [80]}", "{domains: [a.org], cidrs: [10.0.0.0/8], ports: [80]}", "{domains: [a.org], except: [10.0.0.0/8]}"} {
		refused(t, body("network: {egress: ["+rule+"]}"), "2:20: network.egress[0]: ")
	}
	refused(t, body("network: {egress: [{cidrs: [10.0.0.0/8], except: [11.0.0.0/16], ports: [80]}]}"), "2:51: network.egress[0].except[0]: 11.0.0.0/16 lies in none")
	refused(t, body("network: {egress: [{domains: []}]}"), "2:30: network.egress[0].domains: the list is empty")
	for _, c := range []string{"10.0.0.0/33", "10.0.0.0", "10.0.0.0/08", "10.1.0.0/8", "010.0.0.0/8", "::ffff:10.0.0.0/104", "fe80::%eth0/64", "10.0.0/8", "a/8"} {
		refused(t, body("network: {egress: [{cidrs: [\""+c+"\"], ports: [80]}]}"), "2:29: network.egress[0].cidrs[0]: ")
	}
}

func TestContainment(t *testing.T) {
	for _, c := range []struct {
		ceiling, rule string
		want          bool
	}{
		{"{domains: [a.org]}", "{domains: [a.org]}", true},
		{"{domains: [a.org]}", "{domains: [a.org], ports: [80]}", false},
		{"{domains: [a.org]}", "{domains: [\"*.a.org\"]}", false},
		{"{domains: [\"*.a.org\"]}", "{domains: [a.org]}", false},
		{"{domains: [\"*.a.org\"]}", "{domains: [x.y.a.org, \"*.b.a.org\", \"*.a.org\"]}", true},
		{"{domains: [\"*.a.org\"]}", "{domains: [\"*.org\"], unsafe_wildcard: true}", false},
		{"{domains: [\"*\"], unsafe_wildcard: true}", "{domains: [\"*.org\", x.y], unsafe_wildcard: true}", true},
		{"{domains: [\"*.org\"], unsafe_wildcard: true}", "{domains: [\"*\"], unsafe_wildcard: true}", false},
		{"{domains: [\"*\"], ports: [443], unsafe_wildcard: true}", "{cidrs: [10.0.0.0/8], ports: [443]}", false},
		{"{cidrs: [0.0.0.0/0], ports: [443], unsafe_wildcard: true}", "{domains: [a.org]}", false},
		{"{domains: [a.org], ports: [\"1-100\"]}, {domains: [a.org], ports: [\"101-200\"]}", "{domains: [a.org], ports: [\"50-150\"]}", true},
		{"{domains: [a.org], ports: [\"1-100\"]}, {domains: [b.org], ports: [\"101-200\"]}", "{domains: [a.org], ports: [\"50-150\"]}", false},
		{"{domains: [a.org], ports: [53]}", "{domains: [a.org], ports: [\"53/udp\"]}", false},
		{"{cidrs: [10.0.0.0/8], ports: [80]}", "{cidrs: [10.1.0.0/16], ports: [80]}", true},
		{"{cidrs: [10.0.0.0/9, 10.128.0.0/9], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", true},
		{"{cidrs: [10.0.0.0/9], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", false},
		{"{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", false},
		{"{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}", "{cidrs: [10.0.0.0/8], except: [10.0.0.0/15], ports: [80]}", true},
		{"{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}, {cidrs: [10.1.0.0/16], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", true},
		{"{cidrs: [\"::/0\"], ports: [80], unsafe_wildcard: true}", "{cidrs: [10.0.0.0/8], ports: [80]}", false},
		{"{cidrs: [\"fd00::/16\"], ports: [80]}", "{cidrs: [\"fd00::1/128\"], ports: [80]}", true},
		{"{cidrs: [255.0.0.0/8], ports: [\"65535\"]}", "{cidrs: [255.255.255.255/32], ports: [65535]}", true},
		{"", "{domains: [a.org]}", false},
	} {
		ceiling := parse(t, body("network: {egress: ["+c.ceiling+"]}")).Network.Egress
		rule := parse(t, body("network: {egress: ["+c.rule+"]}")).Network.Egress[0]
		if Contains(ceiling, rule) != c.want {
			t.Errorf("%s containing %s is not %v", c.ceiling, c.rule, c.want)
		}
	}
}

func TestAWideCeilingContainsNothingOfTheFloor(t *testing.T) {
	for _, c := range []struct {
		ceiling, rule string
		only          string // how the refusal ends, or "" where there is none
	}{
		{"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/8 is private"},
		{"0.0.0.0/0", "8.8.8.0/24", ""},
		{"0.0.0.0/0", "0.0.0.0/0", ""},
		{"0.0.0.0/0", "0.0.0.0/8", "0.0.0.0/8 is this network"},
		{"0.0.0.0/0", "127.0.0.1/32", "127.0.0.1/32 is loopback"},
		{"0.0.0.0/0", "8.8.8.0/24, 168.63.129.16/32", "168.63.129.16/32 is metadata"},
		{"10.0.0.0/8", "10.1.0.0/16", ""},
		{"10.0.0.0/8", "10.0.0.0/8", ""},
		{"10.0.0.0/9, 10.128.0.0/9", "10.0.0.0/8", ""},
		{"0.0.0.0/0, 10.0.0.0/9", "10.0.0.0/8", "10.0.0.0/8 is private"},
		{"0.0.0.0/0, 10.0.0.0/8", "10.1.0.0/16, 1.1.1.1/32", ""},
		{"169.254.0.0/16", "169.254.7.0/24", ""},
		{"169.254.0.0/16", "169.254.169.254/32", "169.254.169.254/32 is metadata"},
		{"169.254.0.0/16", "169.254.169.0/24", ""},
		{"169.254.0.0/16, 169.254.169.254/32", "169.254.169.254/32", ""},

		// Ranges that hold one of the floor's and lie within none open nothing of it.
		{"0.0.0.0/0", "0.0.0.0/4", ""},
		{"0.0.0.0/0", "8.0.0.0/6", ""},
		{"0.0.0.0/0", "224.0.0.0/3", ""},
		{"8.0.0.0/6", "10.0.0.0/8", "10.0.0.0/8 is private"},
		{"8.0.0.0/6", "0.0.0.0/4", elsewhere},
		{"8.8.8.0/24", "224.0.0.0/3", elsewhere},
		{"10.0.0.0/8", "8.0.0.0/6", elsewhere},

		{`"::/0"`, `"fc00::/7"`, "fc00::/7 is private"},
		{`"::/0"`, `"fe80::/10"`, "fe80::/10 is link-local"},
		{`"::/0"`, `"::1/128"`, "::1/128 is loopback"},
		{`"::/0"`, `"2606:4700::/32"`, ""},
		{`"::/0"`, `"::/0"`, ""},
		{`"::/0"`, `"fc00::/6"`, ""},
		{`"fc00::/7"`, `"fd00:1::/48"`, ""},
		{`"fc00::/7"`, `"fd00:ec2::254/128"`, "fd00:ec2::254/128 is metadata"},

		// What an IPv4 address within an IPv6 one leads to, its range does not tell, so only within the whole of them may some be opened.
		{`"::/0"`, `"64:ff9b::/96"`, "64:ff9b::/96 is IPv4 within IPv6"},
		{`"::/0"`, `"64:ff9b::808:800/120"`, "64:ff9b::808:800/120 is IPv4 within IPv6"},
		{`"64:ff9b::/96"`, `"64:ff9b::a00:0/104"`, ""},
		{`"64:ff9b::/32"`, `"64:ff9b::a00:0/104"`, "64:ff9b::a00:0/104 is IPv4 within IPv6"},
		{"10.0.0.0/8", `"64:ff9b::a00:0/104"`, elsewhere},
		{`"2000::/3"`, `"2002:a00::/24"`, "2002:a00::/24 is IPv4 within IPv6"},
		{`"::/16"`, `"::/96"`, "::/96 is IPv4 within IPv6"},
		{`"::/96"`, `"::1/128"`, "::1/128 is loopback"},
	} {
		egress := func(cidrs string) []Rule {
			return parse(t, body("network: {egress: [{cidrs: ["+cidrs+"], ports: [80], unsafe_wildcard: true}]}")).Network.Egress
		}
		ceiling, rule := egress(c.ceiling), egress(c.rule)[0]
		if got := bound(ceiling, rule); (got == "") != (c.only == "") || !strings.HasSuffix(got, c.only) || Contains(ceiling, rule) != (c.only == "") {
			t.Errorf("%s containing %s: %q, want %q", c.ceiling, c.rule, got, c.only)
		}
	}
	// The ports and exceptions count as everywhere.
	for _, c := range []struct {
		ceiling, rule string
		want          bool
	}{
		{"{cidrs: [0.0.0.0/0], ports: [\"1-100\"]}, {cidrs: [10.0.0.0/8], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", true},
		{"{cidrs: [0.0.0.0/0], ports: [\"1-100\"]}, {cidrs: [10.0.0.0/8], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80, 81]}", false},
		{"{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}, {cidrs: [0.0.0.0/0], ports: [80]}", "{cidrs: [10.0.0.0/8], ports: [80]}", false},
		{"{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}, {cidrs: [0.0.0.0/0], ports: [80]}", "{cidrs: [10.0.0.0/8], except: [10.1.0.0/16], ports: [80]}", true},
	} {
		wide := strings.ReplaceAll(c.ceiling, "[0.0.0.0/0]", "[0.0.0.0/0], unsafe_wildcard: true")
		ceiling, rule := parse(t, body("network: {egress: ["+wide+"]}")).Network.Egress, parse(t, body("network: {egress: ["+c.rule+"]}")).Network.Egress[0]
		if Contains(ceiling, rule) != c.want {
			t.Errorf("%s containing %s is not %v", c.ceiling, c.rule, c.want)
		}
	}
}
