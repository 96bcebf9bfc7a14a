package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/netpolicy/gateway"
	"skillbox/policy"
	"skillbox/sandbox"
)

// explainNetwork answers which destinations a policy lets a skill reach, and by which of its lines. Nothing is looked up.
func explainNetwork(r *helper.Request, f *files) (json.RawMessage, error) {
	if f.policy == nil {
		return nil, refused("the request passes no policy")
	}
	p, err := operatorPolicy(r, f)
	if err != nil {
		return nil, err
	}
	rules := sandbox.Ruleset(p)
	answer := helper.Explained{Table: rules.String(), Destinations: []helper.Destination{}}
	for _, word := range r.Words {
		d, err := explainDestination(rules, word)
		if err != nil {
			return nil, &helper.Error{Message: fmt.Sprintf("%q is no destination: %v", word, err), Hint: "write name:port, address:port or [address]:port, with /udp where it is not tcp"}
		}
		answer.Destinations = append(answer.Destinations, d)
	}
	return json.Marshal(answer)
}

func explainDestination(rules *netpolicy.Ruleset, word string) (d helper.Destination, err error) {
	rest, udp := strings.CutSuffix(word, "/udp")
	proto, suffix := "tcp", ""
	if udp {
		proto, suffix = "udp", "/udp"
	}
	host, text, err := net.SplitHostPort(rest)
	if err != nil {
		return d, errors.New("it has no port")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return d, errors.New("its port is not 1 to 65535")
	}
	e := gateway.Event{Kind: "connection", Proto: proto}
	if addr, err := netip.ParseAddr(host); err == nil {
		e.To, e.Verdict = netip.AddrPortFrom(addr, uint16(port)), rules.Address(addr, uint16(port), proto)
	} else if host, err = policy.NormalizeName(host); err != nil {
		return d, err
	} else {
		e.Name, e.To, e.Verdict = host, netip.AddrPortFrom(addr, uint16(port)), rules.Name(host, uint16(port), proto)
	}
	d = helper.Destination{To: net.JoinHostPort(host, strconv.FormatUint(port, 10)) + suffix, Allowed: e.Verdict.Allowed, Rule: e.Verdict.Rule, Why: e.Verdict.Why}
	if !d.Allowed {
		d.Hint = e.Hint() // as a run would say
	}
	return d, nil
}
