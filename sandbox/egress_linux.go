package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/netpolicy/gateway"
	"skillbox/netpolicy/resolver"
	"skillbox/policy"
)

// resolvConf names the machine's own resolvers, which answer for the box.
const resolvConf = "/etc/resolv.conf"

// openNetwork puts the rules of the box's namespace in force, and serves the way out of it.
func (b *Box) openNetwork(h *Host) error {
	start := time.Now()
	defer func() { b.network.ms += Since(start) }()
	n := &b.Plan.Network
	if h.Mode == "root" && n.Path != "veth" { // which sweeps itself
		if _, err := netpolicy.Sweep(); err != nil {
			return err
		}
	}
	if n.Path == "none" {
		return nil
	}
	var upstream resolver.Upstream
	if n.resolves {
		var err error
		if upstream, err = upstreams(); err != nil {
			return err
		}
	}
	own, err := ownAddresses()
	if err != nil {
		return err
	}
	rules := n.ruleset.OnHost(own)
	sinkhole := n.Path == "sinkhole"
	err = b.network.handle.Open(netpolicy.Description{ID: b.ID, Rules: rules, Sinkhole: sinkhole, Link: n.Path == "veth", Link6: n.IPv6, Limits: netpolicy.Limits(*n.Budget), Linker: h.Linker})
	if err != nil {
		return err
	}
	b.network.gateway = gateway.Start(b.network.handle, gateway.Options{Rules: rules, Normalize: policy.NormalizeName, Upstream: upstream, Budget: *n.Budget, Sinkhole: sinkhole})
	return nil
}

func upstreams() (resolver.Upstream, error) {
	text, err := os.ReadFile(resolvConf)
	if err != nil {
		return resolver.Upstream{}, fmt.Errorf("sandbox: names cannot be resolved: %w", err)
	}
	return resolver.Upstreams(string(text))
}

// ownAddresses are the machine's, at which its own services may listen.
func ownAddresses() (own []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("sandbox: this host's own addresses: %w", err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr())
		}
	}
	return own, nil
}

// network are the handles of a box's network.
type network struct {
	handle  *netpolicy.Handle
	gateway *gateway.Gateway // nil without a way out, and after it ended
	ingress *gateway.Ingress // nil where nobody outside may reach the box, and after it ended
	ms      float64

	mu   sync.Mutex // whoever follows a dead client leaves while it may still be made
	left bool
}

// create makes the namespace, without a way out.
func (n *network) create() error {
	start := time.Now()
	defer func() { n.ms = Since(start) }()
	handle, err := netpolicy.New()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && n.left {
		err = errors.Join(errors.New("sandbox: the run has ended"), handle.Close())
		handle = nil
	}
	n.handle = handle
	return err
}

// leave takes away what outlives this process: the box's link.
func (n *network) leave() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = true
	if n.handle == nil {
		return nil
	}
	return n.handle.Unlink()
}

// hangUp ends the way out; the gateway's record is then whole.
func (n *network) hangUp() (*gateway.Gateway, error) {
	g := n.gateway
	n.gateway = nil
	if g == nil {
		return nil, nil
	}
	return g, g.Close()
}

func (n *network) close() error {
	err := n.retract()
	_, errGateway := n.hangUp()
	err = errors.Join(err, errGateway)
	if n.handle != nil {
		err = errors.Join(err, n.handle.Close())
	}
	return err
}

// addNetwork puts what the box reached and was refused into the envelope. The skill has run: where the gateway did not end well, what it
// has recorded is still told.
func (b *Box) addNetwork(r *helper.Result) {
	report, err := b.passed()
	if report == nil {
		return
	}
	r.Usage.Net = (*helper.Net)(&report.Totals)
	for _, e := range report.Events {
		f := helper.Flow{
			Time: e.Time.UTC(), Kind: e.Kind, Direction: direction(e), Name: e.Name, Address: address(e), Port: e.To.Port(), Proto: e.Proto, Rule: e.Verdict.Rule, Error: e.Err,
			Sent: e.Sent, Received: e.Received, DurationMS: float64(e.Duration.Microseconds()) / 1000,
		}
		if b.Plan.Network.Path == "sinkhole" && !e.In {
			f.Sinkhole, f.First = true, string(e.First)
			if !e.Verdict.Allowed {
				f.Refused, f.Rule, f.Hint = true, deciding(e), e.Hint()
			}
			f.Count = e.Count
		}
		r.Network = append(r.Network, f)
	}
	r.Denials = append(r.Denials, refusedWays(report.Denials)...)
	if report.Dropped > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d more lookups, connections and refusals are not listed", report.Dropped))
	}
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the record of the network may be incomplete: %v", err))
	}
}

func refusedWays(denials []gateway.Event) (all []helper.Denial) {
	for _, e := range denials {
		all = append(all, helper.Denial{
			Kind: e.Kind, Direction: direction(e), What: e.What(), Rule: deciding(e), Hint: e.Hint(), Count: e.Count, Name: e.Name, Address: address(e), Port: e.To.Port(), Proto: e.Proto, First: string(e.First),
		})
	}
	return all
}

// passed is what went out and in since the last call, nil where nothing can.
func (b *Box) passed() (report *gateway.Report, err error) {
	n, lives := &b.network, b.session != nil && b.Alive()
	if in := n.ingress; in != nil {
		if !lives {
			err = n.retract()
		}
		taken := in.Take()
		report = &taken
	}
	g := n.gateway
	if g == nil {
		return report, err
	}
	var out gateway.Report
	var errOut error
	if lives {
		out, errOut = g.Take()
	} else {
		_, errOut = n.hangUp()
		out = g.Report()
	}
	if report != nil {
		out = out.With(*report)
	}
	return &out, errors.Join(err, errOut)
}

func direction(e gateway.Event) string {
	if e.In {
		return "in"
	}
	return ""
}

// deciding is the line that refused something, or the reason where none did.
func deciding(e gateway.Event) string {
	if e.Verdict.Rule == "" {
		return e.Verdict.Why
	}
	return e.Verdict.Rule
}

func address(e gateway.Event) string {
	if !e.To.IsValid() {
		return ""
	}
	return e.To.Addr().String()
}
