package learn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"skillbox/audit"
	"skillbox/client"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/scan"
)

// trial is what came of running every attempt under one policy.
type trial struct {
	wants *wants
	facts []facts // by attempt
	ends  []string
}

// try runs every attempt once under a policy, as it stands but for what is recorded, what becomes of the host's directories, and where the
// network ends.
func (l *learning) try(ctx context.Context, p *policy.Policy) (*trial, error) {
	t := &trial{wants: newWants()}
	for _, a := range l.attempts {
		run, result, err := l.once(ctx, p, a)
		if err != nil {
			return nil, err
		}
		t.wants.add(run)
		t.facts, t.ends = append(t.facts, factsOf(result)), append(t.ends, endOf(result))
	}
	return t, nil
}

// citable tells the records that a wish may be about. There are many others.
func citable(d audit.Detail) bool {
	switch d := d.(type) {
	case audit.DNS, audit.Connection:
		return true
	case audit.Syscall:
		return d.Verdict == audit.Denied
	case audit.File:
		return d.Remedy != ""
	}
	return false
}

// endOf is how a run ended, where it did not by itself and well.
func endOf(r *client.Result) string {
	switch {
	case r.Success:
		return ""
	case r.Verdict == helper.Exited:
		return fmt.Sprintf("exit code %d", r.ExitCode)
	}
	return strings.ReplaceAll(r.Verdict, "_", " ")
}

// once runs one attempt in a world of its own.
func (l *learning) once(ctx context.Context, p *policy.Policy, a scan.Attempt) (*scan.Run, *client.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l.runs++
	world := l.place.Path("world-" + strconv.Itoa(l.runs))
	text, err := l.worldly(p, a, world)
	if err != nil {
		return nil, nil, err
	}
	env := map[string]string{}
	for _, name := range slices.Concat(p.Env.Pass, p.Env.Secrets) {
		env[name] = l.env[name]
	}
	run, result, err := l.place.Run(ctx, scan.Call{Bundle: l.options.Bundle, Policy: text, Params: a.Params, Inputs: l.options.Inputs, Env: env})
	if err := errors.Join(err, scan.Remove(world)); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if run.Dropped > 0 {
		return nil, nil, fmt.Errorf("%d details of run %s were not recorded, so it cannot be told what it needs", run.Dropped, run.ID)
	}
	for _, e := range run.Events {
		if citable(e.Detail) {
			l.records[cite{run.ID, e.Seq}] = e
		}
		if e.Skill != nil {
			l.skill = *e.Skill
		}
	}
	return run, result, nil
}

// worldly is the policy's text for one run: copies stand for directories that the skill may change, and everything is recorded. Names and
// connections end in a sinkhole unless some may really be reached; a skill that has never turned to any has no network, as it will have none.
func (l *learning) worldly(p *policy.Policy, a scan.Attempt, world string) (string, error) {
	q := *p
	q.Command = a.Command
	q.Audit = policy.Audit{Syscalls: "security", Files: "all"}
	q.Network.Sinkhole = len(l.options.Network) == 0 && (p.Network.Sinkhole || len(p.Network.Egress) > 0 || len(l.seen.reached) > 0)
	if q.Network.Sinkhole {
		q.Network.Path = "auto" // it has none
	}
	q.Filesystem.Read, q.Filesystem.Write = slices.Clone(p.Filesystem.Read), nil
	for i, b := range p.Filesystem.Write {
		host := world + "/" + strconv.Itoa(i)
		if err := os.MkdirAll(world, 0o700); err != nil {
			return "", err
		}
		whole, err := copyTree(b.Host, host)
		if err != nil {
			return "", err
		}
		if note := b.Host + " has more than is copied: the skill found a part of it"; !whole && !slices.Contains(l.notes, note) {
			l.notes = append(l.notes, note)
		}
		q.Filesystem.Write = append(q.Filesystem.Write, policy.Bind{Host: host, Path: b.Path, Dangerous: true})
	}
	d := document{policy: &q, shown: map[string]bool{}}
	if p == l.widest {
		// A limit that is named is one that this host must be able to hold; best-effort takes what it has.
		d.shown["resources.memory"], d.shown["resources.pids"] = true, true
	}
	return d.String(), nil
}

// expect runs every attempt so often that what varies by itself shows, and returns what was seen.
func (l *learning) expect(ctx context.Context, p *policy.Policy, runs int) (*wants, []string, error) {
	l.expected = make([]expected, len(l.attempts))
	all, ends := newWants(), []string(nil)
	for range runs {
		for i, a := range l.attempts {
			run, result, err := l.once(ctx, p, a)
			if err != nil {
				return nil, nil, err
			}
			if result.Verdict == helper.TimedOut {
				return nil, nil, &helper.Error{
					Message: fmt.Sprintf("the skill has not ended after %v, so it cannot be told what it comes to", p.Timeout),
					Hint:    "--params or --command with which it ends by itself, or a --ceiling with a longer timeout",
				}
			}
			all.add(run)
			l.expected[i].expect(factsOf(result))
			if end := endOf(result); end != "" {
				ends = append(ends, end)
			}
		}
	}
	l.under = p
	return all, ends, nil
}

// differs lists where a trial came to something else than what is expected. Before it says so it looks again whether that varies by itself: a
// date does, an hour later.
func (l *learning) differs(ctx context.Context, t *trial) (all []string, err error) {
	for i := range l.attempts {
		at := l.expected[i].differing(t.facts[i])
		if len(at) == 0 {
			continue
		}
		_, again, err := l.once(ctx, l.under, l.attempts[i])
		if err != nil {
			return nil, err
		}
		l.expected[i].expect(factsOf(again))
		for _, at := range l.expected[i].differing(t.facts[i]) {
			if name := audit.Clean(strings.TrimSuffix(at, "."), 200); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all, nil
}

// unable tells an error that says that a policy cannot hold here from one that ends everything.
func unable(err error) bool {
	var said *helper.Error
	return errors.As(err, &said)
}
