package server

import (
	"cmp"
	"fmt"
	"slices"

	"skillbox/helper"
	"skillbox/policy"
	"skillbox/sandbox"
)

// unpassed are the variables that a skill declares and the policy does not give it: it runs without them.
func unpassed(declared, effective *policy.Policy) (all []helper.Denial) {
	if declared == nil {
		return nil
	}
	add := func(field string, asked, given []string) {
		for i, name := range asked {
			if slices.Contains(given, name) {
				continue
			}
			at := declared.Position(fmt.Sprintf("%s[%d]", field, i))
			if at.Line == 0 {
				at = declared.Position(field)
			}
			all = append(all, helper.Denial{
				Kind: "env", Name: name, What: fmt.Sprintf("variable %s, for which the skill asks at %s", name, at),
				Rule: field + " does not name it" + written(effective, field), Hint: fmt.Sprintf("env: {%s: [%s]}", field[len("env."):], name), Count: 1,
			})
		}
	}
	add("env.pass", declared.Env.Pass, append(slices.Clone(effective.Env.Pass), effective.Env.Secrets...))
	add("env.secrets", declared.Env.Secrets, append(slices.Clone(effective.Env.Pass), effective.Env.Secrets...))
	return all
}

// written says where the policy says something, or that it is the default.
func written(p *policy.Policy, field string) string {
	if at := p.Position(field).String(); at != "" {
		return ", at " + at
	}
	return ", by default"
}

// limits are the verdicts that say which limit ended a skill.
var limits = map[string]struct {
	key  string
	of   func(*sandbox.Plan) int64
	more func(limit int64) string // as a policy writes so much
}{
	helper.TimedOut:    {"timeout", func(p *sandbox.Plan) int64 { return p.Limits.Timeout.Milliseconds() }, func(n int64) string { return fmt.Sprintf("timeout: %dms", n) }},
	helper.OutOfMemory: {"resources.memory", func(p *sandbox.Plan) int64 { return max(p.Group.Memory, p.Watched.Memory) }, resource("memory", "Ki", 1<<10)},
	helper.PidsLimit:   {"resources.pids", func(p *sandbox.Plan) int64 { return max(p.Group.Pids, p.Watched.Pids) }, resource("pids", "", 1)},
	helper.OutputLimit: {"resources.output", func(p *sandbox.Plan) int64 { return p.Limits.OutputBytes }, resource("output", "Ki", 1<<10)},
}

func resource(key, unit string, size int64) func(int64) string {
	return func(n int64) string { return fmt.Sprintf("resources: {%s: %d%s}", key, (n+size-1)/size, unit) }
}

// met says which limit ended a skill, by which line, and what would give it twice as much; the zero values where none did.
func met(verdict string, plan *sandbox.Plan, p *policy.Policy) (key string, limit int64, rule, remedy string) {
	one, ok := limits[verdict]
	if !ok {
		return "", 0, "", ""
	}
	limit = one.of(plan)
	return one.key, limit, one.key + written(p, one.key), one.more(2 * limit)
}

// explained puts into a result what the policy had to do with it.
func explained(r *helper.Result, d *decision) {
	if d.granted == nil || d.plan == nil || r.Verdict == helper.Refused || r.Verdict == helper.Failed {
		return
	}
	r.Denials = append(r.Denials, d.unpassed...)
	if _, _, _, remedy := met(r.Verdict, d.plan, d.granted.Policy); r.Error != nil {
		r.Error.Hint = cmp.Or(r.Error.Hint, remedy)
	}
}
