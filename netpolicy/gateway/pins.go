package gateway

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"skillbox/netpolicy"
)

// maxPinned bounds the addresses that one box holds open at a time.
const maxPinned = 4096

// pins say for which names an address was given out. What the kernel lets through to us follows them.
type pins struct {
	kernel func(addr netip.Addr, before, after []netpolicy.Ports) error

	mu sync.Mutex
	of map[netip.Addr]*pinned
}

type pinned struct {
	by    []pin
	ports []netpolicy.Ports // open in the kernel
}

type pin struct {
	name  string
	ports []netpolicy.Ports
	until time.Time
}

func (p *pins) add(name string, addr netip.Addr, ports []netpolicy.Ports, ttl time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.of[addr]
	if at == nil {
		if len(p.of) >= maxPinned {
			return errors.New("too many addresses are open")
		}
		at = &pinned{}
	}
	by := slices.DeleteFunc(slices.Clone(at.by), func(q pin) bool { return q.name == name })
	by = append(by, pin{name, ports, time.Now().Add(ttl)})
	if err := p.set(addr, at, by); err != nil {
		return err
	}
	p.of[addr] = at
	return nil
}

// set opens what the list says, and nothing else of this address.
func (p *pins) set(addr netip.Addr, at *pinned, by []pin) error {
	var ports []netpolicy.Ports
	for _, q := range by {
		ports = append(ports, q.ports...)
	}
	ports = union(ports)
	if !slices.Equal(ports, at.ports) {
		if err := p.kernel(addr, at.ports, ports); err != nil {
			return err
		}
	}
	at.by, at.ports = by, ports
	return nil
}

func (p *pins) expire(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, at := range p.of {
		by := slices.DeleteFunc(slices.Clone(at.by), func(q pin) bool { return q.until.Before(now) })
		if len(by) == len(at.by) {
			continue
		}
		if p.set(addr, at, by) == nil && len(by) == 0 { // otherwise it is tried again; names says no meanwhile
			delete(p.of, addr)
		}
	}
}

// names are those that an address stands for now on a port, the last one given out first.
func (p *pins) names(to netip.AddrPort, proto string) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.of[to.Addr()]
	if at == nil {
		return nil
	}
	for _, q := range slices.Backward(at.by) {
		if time.Now().Before(q.until) && slices.ContainsFunc(q.ports, func(r netpolicy.Ports) bool { return r.Proto == proto && r.From <= to.Port() && to.Port() <= r.To }) {
			names = append(names, q.name)
		}
	}
	return names
}

// anyName is the last name that an address was given out for, on whatever port.
func (p *pins) anyName(addr netip.Addr) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.of[addr]; at != nil && len(at.by) > 0 {
		return at.by[len(at.by)-1].name
	}
	return ""
}

// union merges ranges of ports that overlap or touch: the kernel takes none that overlap.
func union(all []netpolicy.Ports) (merged []netpolicy.Ports) {
	slices.SortFunc(all, func(a, b netpolicy.Ports) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	for _, r := range all {
		if n := len(merged); n > 0 && merged[n-1].Proto == r.Proto && int(r.From) <= int(merged[n-1].To)+1 {
			merged[n-1].To = max(merged[n-1].To, r.To)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
