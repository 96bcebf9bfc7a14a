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
	var v netpolicy.Verdict
	if addr, err := netip.ParseAddr(host); err == nil {
		v = rules.Address(addr, uint16(port), proto)
	} else if host, err = policy.NormalizeName(host); err != nil {
		return d, err
	} else {
		v = rules.Name(host, uint16(port), proto)
	}
	d = helper.Destination{To: net.JoinHostPort(host, strconv.FormatUint(port, 10)) + suffix, Allowed: v.Allowed, Rule: v.Rule, Why: v.Why}
	if !v.Allowed && v.Rule == "" {
		d.Hint = "add it to network.egress"
		if strings.HasPrefix(v.Why, "the floor") {
			d.Hint = "only a cidrs rule of network.egress that names the address opens it"
		}
	}
	return d, nil
}
