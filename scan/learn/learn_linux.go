package learn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"skillbox/audit"
	"skillbox/policy"
	"skillbox/scan"
)

// learning is one policy in the making.
type learning struct {
	*subject
	place    *scan.Place
	runs     int      // made so far
	measured []string // limits of which the use is known
	skill    audit.Skill
	records  map[cite]audit.Record

	expected  []expected        // by attempt
	under     *policy.Policy    // the policy that expected is from
	seen      *wants            // everything that was turned to while nothing was missing
	ends      []string          // how runs ended there that did not end well
	allow     []string          // calls beyond the profile that are needed
	excused   map[string]string // what is refused and may stay so, with the reason
	probed    map[string]bool   // what is refused of calls that could be allowed and make no difference
	draft     *policy.Policy
	notStrict string // why the strict profile is not enough; "" where it is, or cannot be
	wishes    []Wish
	failing   []string
}

// Learn runs a skill until it knows the smallest policy under which it works. The Result says whether that is so; an error, that the skill could
// not be run as it should have been, and then nothing is known.
func Learn(ctx context.Context, o Options) (*Result, error) {
	began := time.Now()
	o.Runs = cmp.Or(o.Runs, DefaultRuns)
	s, err := readSubject(o)
	if err != nil {
		return nil, err
	}
	place, err := scan.NewPlace()
	if err != nil {
		return nil, err
	}
	l := &learning{subject: s, place: place, seen: newWants(), records: map[cite]audit.Record{}, excused: map[string]string{}, probed: map[string]bool{}}
	result, err := l.learn(ctx)
	if err = errors.Join(err, place.Close()); err != nil {
		return nil, err
	}
	result.Duration = time.Since(began)
	return result, nil
}

func (l *learning) learn(ctx context.Context) (*Result, error) {
	var err error
	if l.seen, l.ends, err = l.expect(ctx, l.widest, l.options.Runs); err != nil {
		return nil, err
	}
	if err := l.calls(ctx); err != nil {
		return nil, err
	}
	l.excuse()
	l.first()
	if err := l.narrow(ctx); err != nil {
		return nil, err
	}
	if err := l.converge(ctx); err != nil {
		return nil, err
	}
	return l.result()
}

// onlyTried is why something may stay refused that could be allowed.
const onlyTried = "only tried: without it the runs are the same"

// excuse takes what was refused under the widest policy as what may stay refused. What the network refused there, or a sinkhole says that rules
// would have refused, is granted or left to a person instead.
func (l *learning) excuse() {
	for what, r := range l.seen.refused {
		switch {
		case r.kind == audit.DNSKind || r.kind == audit.ConnKind:
		case l.probed[what]:
			l.excused[what] = onlyTried
		case strings.HasSuffix(what, ": ENOENT"):
			l.excused[what] = "there is no such file"
		default:
			l.excused[what] = "nothing that may be tried allows it"
		}
	}
}

// calls finds which of the refused system calls a skill needs: those without which it does something else.
func (l *learning) calls(ctx context.Context) error {
	tried := map[string]bool{}
	for range maxRounds {
		var fresh []string
		for name := range l.seen.calls {
			if !tried[name] && l.riskOfCall(name) == "" && !slices.Contains(l.base.Syscalls.Deny, name) && l.mayAllow(name) {
				fresh = append(fresh, name)
				tried[name] = true
			}
		}
		if len(fresh) == 0 {
			return l.without(ctx)
		}
		p := *l.under
		p.Syscalls.Allow = slices.Sorted(slices.Values(append(slices.Clone(p.Syscalls.Allow), fresh...)))
		t, err := l.try(ctx, &p)
		if err != nil {
			return err
		}
		other, err := l.differs(ctx, t)
		if err != nil {
			return err
		}
		if len(other) == 0 && len(t.wants.calls) == 0 || l.worse(t) {
			for _, name := range fresh {
				l.probed[l.seen.calls[name].what] = len(other) == 0
			}
			continue // the skill is the same without
		}
		// With them it goes on differently, and this is from now on what it does.
		if l.seen, l.ends, err = l.expect(ctx, &p, l.options.Runs); err != nil {
			return err
		}
		l.allow = p.Syscalls.Allow
	}
	return l.without(ctx)
}

// mayAllow tells whether the ceiling has nothing against a call.
func (l *learning) mayAllow(name string) bool {
	c := l.ceiling
	return c == nil || !slices.Contains(c.Syscalls.Deny, name) && (!c.Named("syscalls.allow") || slices.Contains(c.Syscalls.Allow, name))
}

// worse tells whether runs end badly that did not before.
func (l *learning) worse(t *trial) bool {
	return len(l.ends) == 0 && slices.ContainsFunc(t.ends, func(e string) bool { return e != "" })
}

// without takes those calls away again that make no difference.
func (l *learning) without(ctx context.Context) error {
	for _, name := range l.allow {
		p := *l.under
		p.Syscalls.Allow = slices.DeleteFunc(slices.Clone(l.allow), func(n string) bool { return n == name })
		why, t, err := l.does(ctx, &p, false)
		if err != nil {
			return err
		}
		if why == "" {
			l.allow = p.Syscalls.Allow
			for what, r := range t.wants.refused {
				if r.kind == audit.SyscallKind {
					l.excused[what] = onlyTried
				}
			}
		}
	}
	return nil
}

// first is the policy by the records, before it is tried what can be done without.
func (l *learning) first() {
	p := *l.base
	most := l.widest
	p.Filesystem.Tmp, p.Filesystem.Home, p.Filesystem.Output = most.Filesystem.Tmp, most.Filesystem.Home, most.Filesystem.Output
	p.Syscalls.Allow = l.allow
	p.Env.Pass, p.Env.Secrets = most.Env.Pass, most.Env.Secrets
	p.Rootfs.Bundle = "read-only"
	p.Network.Limits = most.Network.Limits
	l.draft = &p
	l.limits()
	l.paths()
	l.network()
	l.risks()
	l.excuseWishes()
}

// limits sets what can be measured, with head-room. What cannot keeps its default; a skill that takes more shows that when the policy is tried.
func (l *learning) limits() {
	p, most := l.draft, l.widest
	var output, memory, pids []int64
	for _, u := range l.seen.usage {
		output = append(output, u.StdoutBytes+u.StderrBytes)
		if u.MemoryPeak > 0 {
			memory = append(memory, u.MemoryPeak)
		}
		if u.PidsPeak > 0 {
			pids = append(pids, u.PidsPeak)
		}
	}
	now := &policy.Policy{}
	if p.Resources = policy.Default().Resources; l.current != nil {
		now, p.Resources = l.current, l.current.Resources
	}
	p.Resources.CPU, p.Resources.OpenFiles = min(p.Resources.CPU, most.Resources.CPU), min(p.Resources.OpenFiles, most.Resources.OpenFiles)
	p.Timeout = time.Duration(keep(limit(l.seen.taken, leastTimeout.Milliseconds(), most.Timeout.Milliseconds(), friendlyTime), now.Timeout.Milliseconds(), l.seen.taken)) * time.Millisecond
	p.Resources.Output = keep(limit(output, leastOutput, most.Resources.Output, friendlySize), now.Resources.Output, output)
	if len(memory) == len(l.seen.usage) {
		p.Resources.Memory = keep(limit(memory, leastMemory, most.Resources.Memory, friendlySize), now.Resources.Memory, memory)
		l.measured = append(l.measured, "resources.memory")
	}
	if len(pids) == len(l.seen.usage) {
		p.Resources.Pids = keep(limit(pids, leastPids, most.Resources.Pids, friendlyCount), now.Resources.Pids, pids)
		l.measured = append(l.measured, "resources.pids")
	}
}

// paths keeps those of the host's directories that were looked into, for writing only where they were written to.
func (l *learning) paths() {
	p, most := l.draft, l.widest
	p.Filesystem.Read, p.Filesystem.Write = nil, nil
	for _, b := range most.Filesystem.Read {
		if touched(l.seen.read, b.Path) || touched(l.seen.written, b.Path) {
			p.Filesystem.Read = append(p.Filesystem.Read, b)
		}
	}
	for _, b := range most.Filesystem.Write {
		switch {
		case touched(l.seen.written, b.Path):
			p.Filesystem.Write = append(p.Filesystem.Write, b)
		case touched(l.seen.read, b.Path):
			p.Filesystem.Read = append(p.Filesystem.Read, b)
		}
	}
}
