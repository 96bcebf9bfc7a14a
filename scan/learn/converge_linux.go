package learn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skillbox/audit"
	"skillbox/policy"
)

// maxRounds bounds how often a policy is mended.
const maxRounds = 8

// converge runs the skill under the policy as it is printed, as often as at first, and mends it by what is refused, until nothing is and the
// runs are the same.
func (l *learning) converge(ctx context.Context) error {
	var granted *policy.Policy // before something was taken back only to see whether it helps
	for round := range maxRounds {
		refused, other, err := l.verify(ctx)
		if err != nil {
			return err
		}
		if len(refused) == 0 && len(other) == 0 {
			break
		}
		if round < maxRounds-1 {
			before := l.draft
			if l.mend(refused) {
				granted = nil
				continue
			}
			if granted == nil {
				granted = before
			}
			if l.widenAgain() {
				continue
			}
		}
		if granted != nil {
			l.draft = granted // nothing of it helped
		}
		for _, r := range refused {
			l.failing = append(l.failing, "refused: "+r.what)
		}
		for _, at := range other {
			l.failing = append(l.failing, "not the same as under the ceiling: "+at)
		}
		break
	}
	for _, w := range l.wishes {
		if w.Key == "network.egress" {
			l.failing = append(l.failing, fmt.Sprintf("left to a person: %s %s: %s", w.Key, w.Value, w.Why))
		}
	}
	if len(l.ends) > 0 && len(l.wishes) > 0 && len(l.failing) == 0 {
		l.failing = append(l.failing, "runs ended with "+l.ends[0]+", and what they turned to is commented out")
	}
	return nil
}

// verify tries the policy's own text. What it says that is not the same belongs to what is refused, where there is any.
func (l *learning) verify(ctx context.Context) (refused []refusal, other []string, err error) {
	text := l.document().String()
	p, err := policy.Parse("", []byte(text))
	if err != nil {
		return nil, nil, fmt.Errorf("the learned policy is none, which is a bug: %w\n%s", err, text)
	}
	if _, err := policy.Grant(l.ceiling, p, nil); err != nil {
		return nil, nil, fmt.Errorf("the learned policy is beyond the ceiling, which is a bug: %w", err)
	}
	all := map[string]refusal{}
	for range l.options.Runs {
		t, err := l.try(ctx, p)
		if err != nil && unable(err) && ctx.Err() == nil {
			return nil, []string{"it does not start: " + err.Error()}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		l.learnMore(t)
		for _, r := range l.fresh(t) {
			all[r.what] = r
		}
		at, err := l.differs(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		other = append(other, at...)
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		refused = append(refused, all[what])
	}
	slices.Sort(other)
	return refused, slices.Compact(other), nil
}

// learnMore takes what a run turned to that none before it did.
func (l *learning) learnMore(t *trial) {
	for key, r := range t.wants.reached {
		at := l.seen.reached[key]
		if at == nil {
			at = &reached{name: r.name, addr: r.addr, port: r.port, proto: r.proto, runs: map[int]bool{}, at: r.at}
			l.seen.reached[key] = at
		}
		for i := range r.runs {
			at.runs[l.seen.runs+i] = true
		}
	}
	l.seen.runs += t.wants.runs
	maps.Copy(l.seen.written, t.wants.written)
}

// mend grants what was refused, as far as a program may. It is false where there was nothing to grant.
func (l *learning) mend(refused []refusal) bool {
	p, mended := *l.draft, false
	old := strings.Join(rules(p.Network.Egress), "\n")
	for _, r := range refused {
		switch r.kind {
		case audit.SyscallKind:
			mended = l.mendCall(&p, r) || mended
		case audit.FileKind:
			if strings.Contains(r.remedy, "rootfs:") && p.Rootfs.Bundle == "read-only" {
				p.Rootfs.Bundle, mended = "copy-on-write", true
			}
		case audit.LimitKind:
			mended = l.raise(&p, r.remedy) || mended
		}
	}
	l.draft = &p
	l.network()
	if strings.Join(rules(l.draft.Network.Egress), "\n") != old {
		p.Syscalls.Profile, mended = "default", true
	}
	l.excuseWishes()
	return mended || slices.ContainsFunc(refused, func(r refusal) bool { return l.excused[r.what] != "" })
}

// mendCall allows a call that only the learned policy refuses.
func (l *learning) mendCall(p *policy.Policy, r refusal) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.what, "call "), "(")
	switch {
	case p.Syscalls.Profile == "strict":
		p.Syscalls.Profile = "default"
		return true
	case l.riskOfCall(name) != "":
		l.wish("syscalls.allow", name, "risky: "+l.riskOfCall(name), r.at)
		l.excused[r.what] = leftToAPerson
	case strings.HasPrefix(r.remedy, "syscalls: {allow:") && !slices.Contains(p.Syscalls.Allow, name) && l.mayAllow(name):
		p.Syscalls.Allow = slices.Sorted(slices.Values(append(slices.Clone(p.Syscalls.Allow), name)))
		return true
	}
	return false
}

// raise doubles a limit that was met, up to what the ceiling allows.
func (l *learning) raise(p *policy.Policy, key string) bool {
	more := func(now *int64, most int64) bool {
		was := *now
		*now = min(*now*2, most)
		return *now > was
	}
	switch most := l.widest.Resources; key {
	case "timeout":
		was := p.Timeout
		p.Timeout = min(time.Duration(friendlyTime(2*was.Milliseconds()))*time.Millisecond, l.widest.Timeout)
		return p.Timeout > was
	case "resources.memory":
		return more(&p.Resources.Memory, most.Memory)
	case "resources.pids":
		return more(&p.Resources.Pids, most.Pids)
	case "resources.output":
		return more(&p.Resources.Output, most.Output)
	}
	return false
}

// excuseWishes: what is left to a person is refused until that person has thought about it.
func (l *learning) excuseWishes() {
	for _, r := range l.seen.reached {
		to := r.name
		one := policy.Rule{Domains: []string{r.name}, Ports: []policy.Port{{From: r.port, To: r.port, Proto: r.proto}}}
		if to == "" {
			to, one.Domains, one.CIDRs = r.addr.String(), nil, prefixes(*r)
		}
		looked, connected := "look up "+to, fmt.Sprintf("connect to %s port %d/%s", to, r.port, r.proto)
		if !slices.ContainsFunc(l.draft.Network.Egress, func(rule policy.Rule) bool {
			return slices.ContainsFunc(rule.Domains, func(p string) bool { return policy.MatchName(p, r.name) })
		}) {
			l.excused[looked] = leftToAPerson
		}
		if r.port != 0 && !policy.Contains(l.draft.Network.Egress, one) {
			l.excused[connected] = leftToAPerson
		}
	}
}

// widenAgain takes back one thing that was taken away, where runs are not the same and nothing says why.
func (l *learning) widenAgain() bool {
	p, most, usual := *l.draft, l.widest, policy.Default()
	switch {
	case p.Syscalls.Profile == "strict":
		p.Syscalls.Profile = "default"
	case p.Filesystem.Tmp < most.Filesystem.Tmp || p.Filesystem.Home < most.Filesystem.Home || p.Filesystem.Output < most.Filesystem.Output:
		p.Filesystem.Tmp, p.Filesystem.Home, p.Filesystem.Output = most.Filesystem.Tmp, most.Filesystem.Home, most.Filesystem.Output
	case !slices.Equal(p.Env.Pass, most.Env.Pass) || !slices.Equal(p.Env.Secrets, most.Env.Secrets):
		p.Env.Pass, p.Env.Secrets = most.Env.Pass, most.Env.Secrets
	case p.Rootfs.Bundle == "read-only" && l.seen.ownFile:
		p.Rootfs.Bundle = "copy-on-write"
	case p.Resources.OpenFiles == usual.Resources.OpenFiles && most.Resources.OpenFiles > p.Resources.OpenFiles:
		p.Resources.OpenFiles = most.Resources.OpenFiles
	default:
		return false
	}
	l.draft = &p
	return true
}
