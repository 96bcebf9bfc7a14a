package sandbox

import (
	"fmt"

	"skillbox/policy"
)

// Hostname is the name of a box's host. In a sinkhole, where a skill is to behave as it would elsewhere, it is one that many machines have.
const Hostname, NeutralHostname = "skillbox", "server"

// name decides what the box calls itself. Where skillboxd may not say it (h.Unnamable), the box has the name of the container around it, which
// tells nothing if it is one of ours.
func (plan *Plan) name(h *Host, p *policy.Policy) (string, error) {
	name := Hostname
	if p.Network.Sinkhole {
		name = NeutralHostname
	}
	if h.Unnamable == "" {
		plan.OCI.Hostname = name
		return name, nil
	}
	// Without a name of the plan's, nobody tries to set one.
	if h.Name == name || h.Name == NeutralHostname {
		return h.Name, nil
	}
	message := fmt.Sprintf("the skill would see %s, the host name of what is around skillbox: %s", h.Name, h.Unnamable)
	if p.Enforcement != "best-effort" {
		return "", &Refusal{
			Field: "enforcement", Position: p.Position("enforcement"), Message: message,
			Hint: "start the container with --hostname " + NeutralHostname + " (Kubernetes: hostname: " + NeutralHostname + "), which every box may show; or say enforcement: best-effort",
		}
	}
	plan.Warnings = append(plan.Warnings, message+" (best-effort)")
	return h.Name, nil
}
