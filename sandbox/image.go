package sandbox

import (
	"fmt"
	"maps"
	"strings"

	"skillbox/image"
	"skillbox/policy"
	"skillbox/rootfs"
)

// configure takes what an image says about running it, as far as a policy could have said it. What the policy says itself comes before.
func (plan *Plan) configure(i *image.Image) {
	if i == nil {
		return
	}
	warn := func(format string, a ...any) { plan.Warnings = append(plan.Warnings, fmt.Sprintf(format, a...)) }
	env := map[string]string{}
	for _, variable := range i.Config.Env {
		name, value, _ := strings.Cut(variable, "=")
		// HOME and TMPDIR are where the skill may write.
		if name == "HOME" || name == "TMPDIR" {
			continue
		}
		if err := policy.CheckEnvName(name); err != nil || strings.ContainsRune(value, 0) {
			warn("the image's variable %.80q is left out: a policy could not set it either", name)
			continue
		}
		if name == "PATH" {
			value += ":" + rootfs.ProgramDir // whose stand-ins come last
		}
		env[name] = value
	}
	maps.Copy(env, plan.Env)
	plan.Env = env
	if u := i.Config.User; u != "" && u != "root" && u != "0" && u != "0:0" && u != "root:root" {
		warn("the image wants to run as user %.80q: the skill runs as the sandbox's own", u)
	}
}

// ImageDigest names the image that is the root; "" where none is.
func (plan *Plan) ImageDigest() string {
	if plan.Tree.Image == nil {
		return ""
	}
	return plan.Tree.Image.Digest
}
