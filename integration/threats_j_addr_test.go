//go:build linux

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// badNames allows names whose owner says what nobody may be told.
const badNames = `
egress:
  - {domains: ["*.bad.example", "*.flip.example", "*.ttl.example", metadata.google.internal, api.allowed.example, inward.allowed.example], ports: [80, 443, 7001, 7002, 9999]}
limits: {connections: 10000, rate: 10000, bytes: 1Gi}
`

// heldBack looks up names and demands that none has an address, and that their addresses cannot be reached afterwards.
func (w *world) heldBack(t *testing.T, y way, policy string, names, addrs []string) {
	t.Helper()
	var tries []try
	for _, port := range []int{80, 443, openPort} {
		tries = append(tries, direct(t, port, addrs...)...)
	}
	tries[0].talk.Look = names
	talks := make([]talk, len(tries))
	for i, x := range tries {
		talks[i] = x.talk
	}
	found := map[string]lookup{}
	r := w.probe(t, y, policy, &found, nil, append([]string{"resolve"}, names...)...)
	for _, name := range names {
		if found[name].Addrs != "no such host" {
			t.Errorf("%s has addresses: %v", name, found[name])
		}
		if !slices.ContainsFunc(w.asked(), func(q string) bool { return strings.HasSuffix(q, " "+name+".") }) {
			t.Errorf("%s was not asked for at all", name)
		}
		denied(t, r, "dns", name, "the floor: ", "an IPv4 address as an IPv6 one")
	}
	w.only(t)
	w.judge(t, y, policy, tries)
}

// The gateway is the internet here; the host is what the box could take for one. A box that has addresses of its own tries those too.
// Beside the DNS server of the box, what listens within it is ours and leads nowhere when it is asked directly.
func TestThreat186HostGatewayServices(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		var near []string
		w.probe(t, y, y.policy(usual), &near, nil, "gateways")
		for _, addr := range append([]string{"127.0.0.1", "::1"}, near...) {
			open := map[string]outcome{}
			w.probe(t, y, y.policy(usual), &open, nil, "scan", addr, fmt.Sprint(load(2000)))
			for at, o := range open {
				switch {
				case strings.HasPrefix(addr, "127.") && strings.HasSuffix(at, ":53"): // the box's DNS server
				case o.Bytes > 0 || o.End == "timeout" || o.Connect != "ok" && o.Connect != "ECONNRESET":
					t.Errorf("%s: %v", at, o)
				default:
					t.Logf("%s takes connections and ends them: %v", at, o)
				}
			}
		}
		w.only(t)
		var tries []try
		for _, port := range []int{openPort, loopbackPort, 53, 22} {
			tries = append(tries, direct(t, port, hostAddr, hostAddr6)...)
			tries = append(tries, direct(t, port, gatewayAddr, gatewayAddr6)...)
		}
		w.judge(t, y, y.policy(usual), tries)
	})
}

func TestThreat187HostLoopback(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		targets := []string{}
		for _, addr := range []string{"127.0.0.1", "::1", "127.0.0.53", "127.1.2.3", "0.0.0.0", "::", "::ffff:127.0.0.1", "10.0.2.2", "10.0.2.3", "192.168.127.254", hostAddr, hostAddr6} {
			for _, port := range []int{openPort, loopbackPort, 22} {
				targets = append(targets, "tcp "+join(addr, port), "udp "+join(addr, port))
			}
		}
		targets = append(targets, "tcp 127.0.0.53:53", "tcp [::1]:53")
		got := map[string]outcome{}
		w.probe(t, y, y.policy(badNames), &got, nil, append([]string{"reach"}, targets...)...)
		for to, o := range got {
			if strings.HasPrefix(to, "tcp") && o.Connect == "ok" || o.Bytes > 0 {
				t.Errorf("%s: %v", to, o)
			}
		}
		sockets := map[string]string{}
		w.probe(t, y, y.policy(badNames), &sockets, nil, "unix-sockets", abstractSocket, "/run/systemd/resolve/io.systemd.Resolve", "/run/dbus/system_bus_socket")
		all(t, sockets, "ECONNREFUSED", "ENOENT")
		w.only(t)
		w.heldBack(t, y, y.policy(badNames), []string{
			"loop.bad.example", "stub.bad.example", "loopsix.bad.example", "zero.bad.example", "zerosix.bad.example", "host.bad.example", "hostsix.bad.example",
		}, []string{hostAddr, hostAddr6})
	})
}

func TestThreat188Metadata(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		w.heldBack(t, y, y.policy(badNames), []string{
			"meta.bad.example", "ecs.bad.example", "alibaba.bad.example", "azure.bad.example", "metadata.google.internal", "ec2six.bad.example", "gcesix.bad.example", "inward.allowed.example",
			"mapped.bad.example", "nat64.bad.example", "sixtofour.bad.example",
		}, []string{
			"169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16",
			"100.96.0.96", "100.80.80.80", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
		})
	})
}

func TestThreat189PrivateRanges(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		w.heldBack(t, y, y.policy(badNames), []string{
			"ten.bad.example", "onesevenwo.bad.example", "onenine.bad.example", "cgnat.bad.example", "tailscale.bad.example", "linklocal.bad.example", "multicast.bad.example",
			"reserved.bad.example", "broadcast.bad.example", "documentation.bad.example", "ula.bad.example", "linklocalsix.bad.example", "multicastsix.bad.example", "mappedten.bad.example",
			"compatible.bad.example", "translated.bad.example", "nat64ten.bad.example", "sixtofourloop.bad.example",
		}, withheld[7:])
		targets := []string{
			"udp 10.1.2.3:7", "udp [fd12:3456::7]:7", "udp 224.0.0.251:5353", "udp 255.255.255.255:7", "udp 11.22.33.255:7", "udp [ff02::fb]:5353",
			"tcp [fe80::1]:80", "tcp 255.255.255.255:80", "tcp 224.0.0.1:80",
		}
		got := map[string]outcome{}
		w.forget()
		w.probe(t, y, y.policy(badNames), &got, nil, append([]string{"reach"}, targets...)...)
		for to, o := range got {
			if o.Connect == "ok" && (strings.HasPrefix(to, "tcp") || o.Bytes > 0) {
				t.Errorf("%s: %v", to, o)
			}
		}
		w.only(t)
		// Among several addresses the public one is left.
		found := map[string]lookup{}
		w.probe(t, y, y.policy(badNames), &found, nil, "resolve", "mixed.bad.example")
		if found["mixed.bad.example"].Addrs != apiAddr {
			t.Errorf("of a public and a private address came %v", found)
		}
	})
}

// What a cidrs rule names is open, and its exceptions are not.
func TestPrivateAddressesAreOpenedByCIDRs(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		policy := y.policy(`
egress:
  - {cidrs: [10.1.0.0/16, 192.168.0.0/16, "fd12:3456::/64"], except: [192.168.7.0/24], ports: [9999, 443]}
  - {domains: [ten.bad.example], ports: [9999]}
deny:
  - {cidrs: [10.1.2.3/32], ports: [443]}
`)
		say := func(addr string, port int, want, rule string) try {
			return try{join(addr, port), talk{To: "tcp " + join(addr, port), Send: spoken(t, "api.allowed.example", port), Hold: 300}, want, rule}
		}
		named := say("10.1.2.3", 9999, reached, "")
		named.talk.Look = []string{"ten.bad.example"}
		w.judge(t, y, policy, []try{
			say("10.1.2.3", 9999, reached, ""), say("fd12:3456::7", 9999, reached, ""), say("fd12:3456::7", 443, reached, ""), named,
			say("192.168.7.7", 9999, refused, "the floor: private"), say("10.1.2.3", 443, refused, "policy.yaml:"),
			say("10.1.2.3", 80, refused, "the floor: private"), say("172.16.5.5", 9999, refused, "the floor: private"),
		})
	})
}
