package learn

import (
	"context"
	"slices"
	"strings"

	"skillbox/audit"
	"skillbox/policy"
)

const mib = 1 << 20

// scratch are the sizes of scratch space that are tried, each with the one that is granted where it is enough.
var scratch = []struct{ tried, granted int64 }{{1 * mib, 4 * mib}, {8 * mib, 16 * mib}, {32 * mib, 64 * mib}, {128 * mib, 256 * mib}}

// narrow takes away one thing after the other that the runs do without.
func (l *learning) narrow(ctx context.Context) error {
	steps := []func(context.Context) error{l.ownFiles, l.strict, l.scratch, l.environment}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// does tells whether the runs are the same under a policy as they should be, or else why not: what fails is tried again, since a busy machine
// fails too. Where quiet, nothing may be refused either that was not before.
func (l *learning) does(ctx context.Context, p *policy.Policy, quiet bool) (why string, t *trial, err error) {
	for range 2 {
		if why, t, err = l.doesOnce(ctx, p, quiet); why == "" || err != nil {
			return why, t, err
		}
	}
	return why, t, nil
}

func (l *learning) doesOnce(ctx context.Context, p *policy.Policy, quiet bool) (why string, t *trial, err error) {
	q := *p
	q.Timeout = l.widest.Timeout // how long it takes is another question
	t, err = l.try(ctx, &q)
	if err != nil && unable(err) && ctx.Err() == nil {
		return err.Error(), nil, nil // it cannot hold here
	}
	if err != nil {
		return "", nil, err
	}
	if fresh := l.fresh(t); quiet && len(fresh) > 0 {
		return "it refuses: " + fresh[0].what, t, nil
	}
	other, err := l.differs(ctx, t)
	if len(other) > 0 {
		why = "not the same: " + strings.Join(other[:min(len(other), 3)], ", ")
	}
	return why, t, err
}

// fresh are the refusals of a trial that are not excused.
func (l *learning) fresh(t *trial) (all []refusal) {
	for what, r := range t.wants.refused {
		if l.excused[what] == "" {
			all = append(all, r)
		}
	}
	return all
}

// ownFiles lets the skill change its own files only if it does, and does something else when it cannot. Python tries to, for what it has compiled.
func (l *learning) ownFiles(ctx context.Context) error {
	if !l.seen.ownFile {
		return nil
	}
	why, t, err := l.does(ctx, l.draft, false)
	if err != nil {
		return err
	}
	if why != "" {
		l.draft.Rootfs.Bundle = "copy-on-write"
		return nil
	}
	for what, r := range t.wants.refused {
		if r.kind == audit.FileKind && l.excused[what] == "" {
			l.excused[what] = onlyTried
		}
	}
	return nil
}

// strict takes the smallest set of system calls for skills that compute only.
func (l *learning) strict(ctx context.Context) error {
	if len(l.draft.Network.Egress) > 0 || len(l.seen.reached) > 0 {
		return nil
	}
	p := *l.draft
	p.Syscalls.Profile = "strict"
	why, _, err := l.does(ctx, &p, true)
	if why == "" {
		l.draft = &p
	}
	l.notStrict = why
	return err
}

// scratch finds how large the scratch file systems must be: all together first, for most skills use next to nothing of any.
func (l *learning) scratch(ctx context.Context) error {
	of := []func(*policy.Policy) *int64{
		func(p *policy.Policy) *int64 { return &p.Filesystem.Tmp },
		func(p *policy.Policy) *int64 { return &p.Filesystem.Home },
		func(p *policy.Policy) *int64 { return &p.Filesystem.Output },
	}
	if ok, err := l.fits(ctx, of, scratch[0].tried, scratch[0].granted); ok || err != nil {
		return err
	}
	for _, one := range of {
		for _, s := range scratch {
			ok, err := l.fits(ctx, []func(*policy.Policy) *int64{one}, s.tried, s.granted)
			if err != nil {
				return err
			}
			if ok {
				break
			}
		}
	}
	return nil
}

// fits tells whether so much is enough, and grants more then, up to what the ceiling allows.
func (l *learning) fits(ctx context.Context, of []func(*policy.Policy) *int64, tried, granted int64) (bool, error) {
	p := *l.draft
	for _, one := range of {
		*one(&p) = min(tried, *one(l.widest))
	}
	if why, _, err := l.does(ctx, &p, false); why != "" || err != nil {
		return false, err
	}
	for _, one := range of {
		*one(&p) = min(granted, *one(l.widest))
		if l.current != nil && *one(l.current) >= tried {
			*one(&p) = min(*one(&p), *one(l.current))
		}
	}
	l.draft = &p
	return true, nil
}

// environment keeps the variables and secrets without which the runs are not the same.
func (l *learning) environment(ctx context.Context) error {
	for _, of := range []func(*policy.Policy) *[]string{
		func(p *policy.Policy) *[]string { return &p.Env.Pass },
		func(p *policy.Policy) *[]string { return &p.Env.Secrets },
	} {
		for _, name := range slices.Clone(*of(l.draft)) {
			p := *l.draft
			*of(&p) = slices.DeleteFunc(slices.Clone(*of(&p)), func(n string) bool { return n == name })
			why, _, err := l.does(ctx, &p, false)
			if err != nil {
				return err
			}
			if why == "" {
				l.draft = &p
			}
		}
	}
	return nil
}
