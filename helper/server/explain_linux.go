package server

import (
	"encoding/json"

	"skillbox/helper"
	"skillbox/sandbox"
)

// explain answers plan and policy-check: what would be done, without doing it.
func explain(h *sandbox.Host, r *helper.Request, f *files) (json.RawMessage, error) {
	if r.Op == helper.OpPolicyCheck {
		p, err := operatorPolicy(r, f)
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]string{"policy": string(p.YAML()), "digest": p.Digest()})
	}
	d, err := decide(h, r, f)
	if err != nil {
		return nil, err
	}
	if r.OCI {
		return json.Marshal(d.plan.OCI)
	}
	return json.Marshal(struct {
		Argv    []string      `json:"argv"`
		Policy  string        `json:"policy"`
		Granted any           `json:"granted"`
		Plan    *sandbox.Plan `json:"plan"`
	}{d.argv, string(d.granted.Policy.YAML()), d.granted, d.plan})
}
