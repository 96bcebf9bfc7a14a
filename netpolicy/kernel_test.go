package netpolicy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/netpolicy/floor"
)

// FuzzRules compares what the table of random rules says with what the kernel does to random packets.
func FuzzRules(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: it makes network namespaces")
	}
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		egress, deny := randomRules(random, 1+random.IntN(4), "allow"), randomRules(random, random.IntN(3), "deny")
		if random.IntN(4) == 0 { // enough of the same ports for a set of their own
			for i := range many + 1 {
				egress[0].CIDRs = append(egress[0].CIDRs, netip.PrefixFrom(netip.AddrFrom4([4]byte{93, 185, byte(i), 0}), 25))
			}
		}
		rules := Compile(egress, deny)
		h, err := Create(Description{Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		inside(t, h, func() {
			for range 200 {
				to := netip.AddrPortFrom(randomAddress(random, append(egress, deny...)), uint16(1+random.IntN(40)))
				if a := to.Addr(); a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || floor.Of(a) == "this network" || floor.Of(a) == "loopback" {
					continue // what never leaves, or needs a scope
				}
				said, by := judge(t, rules.String(), to)
				if got := attempt(t, to); got != said {
					t.Fatalf("%s: the table says %v (%s), the kernel %v\n%s", to, said, by, got, rules)
				}
				if v := rules.Address(to.Addr(), to.Port(), "tcp"); v.Allowed != said {
					t.Fatalf("%s: the table says %v (%s), the decision is %+v\n%s", to, said, by, v, rules)
				}
			}
		})
	})
}

func randomRules(random *rand.Rand, n int, word string) []Rule {
	rules := make([]Rule, n)
	for i := range rules {
		r := &rules[i]
		r.Line = fmt.Sprintf("%s.yaml:%d", word, i+1)
		for range 1 + random.IntN(3) {
			r.CIDRs = append(r.CIDRs, randomRange(random))
		}
		for _, c := range r.CIDRs {
			if e, err := c.Addr().Prefix(min(c.Bits()+1+random.IntN(4), c.Addr().BitLen())); err == nil && random.IntN(3) == 0 {
				r.Except = append(r.Except, e)
			}
		}
		for range random.IntN(3) {
			from := uint16(1 + random.IntN(40))
			r.Ports = append(r.Ports, Ports{from, from + uint16(random.IntN(5)), "tcp"})
		}
		if len(r.Ports) == 0 && word == "allow" {
			r.Ports = []Ports{{1, 20, "tcp"}}
		}
	}
	return rules
}

// randomRange is small enough a world for rules to meet, also within IPv6 addresses that hold IPv4 ones.
func randomRange(random *rand.Rand) netip.Prefix {
	if random.IntN(8) == 0 { // wide enough to hold some of the floor
		return prefixes("0.0.0.0/0", "::/0", "168.63.0.0/16", "10.0.0.0/8", "169.254.0.0/16", "64:ff9b::/32", "2002::/15")[random.IntN(7)]
	}
	if random.IntN(4) == 0 {
		e := floor.Embeddings()[random.IntN(len(floor.Embeddings()))]
		a := e.In.Addr().As16()
		inner := []byte{93, 184, 0, byte(random.IntN(64))}
		for i, b := range inner {
			if e.Inverted {
				b = ^b
			}
			a[e.At+i] = b
		}
		p, _ := netip.AddrFrom16(a).Prefix(e.At*8 + 24 + random.IntN(9))
		return p
	}
	return randomPrefix(random)
}

// randomAddress is mostly one that a rule is about.
func randomAddress(random *rand.Rand, rules []Rule) netip.Addr {
	r := rules[random.IntN(len(rules))]
	a := r.CIDRs[random.IntN(len(r.CIDRs))].Addr().AsSlice()
	a[len(a)-1] ^= byte(random.IntN(64))
	switch random.IntN(10) {
	case 0, 1:
		return randomRange(random).Addr()
	case 2:
		kind := floor.Kinds()[random.IntN(len(floor.Kinds()))]
		return kind.Ranges[random.IntN(len(kind.Ranges))].Addr()
	}
	to, _ := netip.AddrFromSlice(a)
	return to
}

// judge reads the printed table as a person would.
func judge(t *testing.T, table string, to netip.AddrPort) (allowed bool, by string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for i, line := range lines {
		f := strings.Fields(line)
		if f[0] == "but" || f[1] == "everything" || !onPorts(t, f[2:len(f)-1], to.Port()) {
			continue
		}
		tried := []netip.Addr{to.Addr()}
		if f[0] == "deny" {
			tried = floor.Forms(to.Addr())
		}
		for _, a := range tried {
			holds := netip.MustParsePrefix(f[1]).Contains(a)
			for _, but := range lines[i+1:] {
				hole := strings.Fields(but)
				if hole[0] != "but" {
					break
				}
				holds = holds && !netip.MustParsePrefix(hole[2]).Contains(a)
			}
			if holds {
				return f[0] == "allow", line
			}
		}
	}
	return false, "deny  everything else"
}

func onPorts(t *testing.T, words []string, port uint16) bool {
	t.Helper()
	if strings.Join(words, " ") == "every port" {
		return true
	}
	for _, w := range words {
		from, to, isRange := strings.Cut(w, "-")
		if !isRange {
			to = from
		}
		low, err := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil {
			t.Fatalf("ports %q", words)
		}
		if low <= int(port) && int(port) <= high {
			return true
		}
	}
	return false
}

// inside runs f on a thread in a box's network namespace.
func inside(t *testing.T, h *Handle, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// attempt says whether a connection gets as far as skillboxd.
func attempt(t *testing.T, to netip.AddrPort) bool {
	t.Helper()
	family := unix.AF_INET
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, sa); err {
	case nil:
		return true
	case unix.ECONNREFUSED:
		return false
	default:
		t.Fatalf("connect to %s: %v", to, err)
		return false
	}
}
