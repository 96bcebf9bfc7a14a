package sandbox

import (
	"os"
	"strings"
	"testing"

	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/netpolicy/gateway"
	"skillbox/policy"
)

// What fails when the way out ends does not take the result of a skill that has run.
func TestAGatewayThatEndsBadlyIsAWarning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	rules := netpolicy.Compile([]netpolicy.Rule{{Domains: []string{"api.example"}, Ports: []netpolicy.Ports{{From: 443, To: 443, Proto: "tcp"}}}}, nil)
	h, err := netpolicy.Create(netpolicy.Description{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	b := &Box{}
	b.network.handle, b.network.gateway = h, gateway.Start(h, gateway.Options{Rules: rules, Normalize: policy.NormalizeName})
	if err := h.TCP[0].Close(); err != nil { // under the gateway, which closes it once more
		t.Fatal(err)
	}
	r := &helper.Result{}
	b.addNetwork(r)
	if r.Usage.Net == nil || len(r.Warnings) != 1 || !strings.HasPrefix(r.Warnings[0], "the record of the network may be incomplete: ") {
		t.Errorf("%+v", r)
	}
	if err := b.network.close(); err != nil {
		t.Error(err)
	}
}
