package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"skillbox/bundle"
	"skillbox/client"
	"skillbox/helper"
)

// Options say how a test is run. The zero value runs everything that is found, one after the other.
type Options struct {
	Dir      string
	Jobs     int            // runs at a time; 0 is one
	Only     *regexp.Regexp // of "SKILL/CASE"; nil is all
	Policy   string         // file with the policy of every case that has none, and the limit of what skills' own test files may ask for
	Trust    bool           // let the policies in skills' own test files count as the caller's
	Mode     string         // who runs them, as package client knows it; "" is oneshot, of which nothing stays
	Timeout  time.Duration  // of a case, all in all; 0 is a minute
	Command  string         // the program skillbox, for what package client does not do
	Progress func(done, all int, last *Outcome)
}

// ErrNoSkills says that a directory holds none.
var ErrNoSkills error = &helper.Error{Message: "there is no skill to test", Hint: "a skill is a directory with SKILL.md, skillbox.yaml, .skill-engine.toml, or manifest.yaml and skill.py"}

// Run finds the skills of a directory and tries each. An error says that nothing could be tried; when ctx ends, it is ctx's and comes with what
// was found out before.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	skills, err := Find(o.Dir)
	if err != nil {
		return nil, err
	}
	var all []*trial
	for _, s := range skills {
		for _, t := range s.trials() {
			if o.Only == nil || o.Only.MatchString(s.Path+"/"+t.outcome.Case) {
				all = append(all, t)
			}
		}
	}
	if len(all) == 0 {
		return nil, ErrNoSkills
	}
	o.work(ctx, all)
	r := &Report{Directory: o.Dir, Began: began.UTC(), DurationMS: milliseconds(began), Skills: len(skills)}
	for _, t := range all {
		if t.outcome.Status == "" {
			t.outcome.Status, t.outcome.Why = Skipped, []string{"interrupted"}
		}
		r.Outcomes = append(r.Outcomes, t.outcome)
	}
	r.count()
	return r, ctx.Err()
}

// work does the trials, Jobs at a time.
func (o *Options) work(ctx context.Context, all []*trial) {
	next := make(chan *trial)
	var mu sync.Mutex
	var done int
	var group sync.WaitGroup
	for range max(o.Jobs, 1) {
		group.Go(func() {
			for t := range next {
				began := time.Now()
				o.try(ctx, t)
				t.outcome.DurationMS = milliseconds(began)
				mu.Lock()
				if done++; o.Progress != nil {
					o.Progress(done, len(all), t.outcome)
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range all {
		select {
		case next <- t:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
}

func milliseconds(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}

// trial is one case, or a smoke run, that is to be tried.
type trial struct {
	skill   *Skill
	one     *Case
	smoke   bool
	skip    string // why there is nothing to try
	outcome *Outcome
}

// trials are the skill's cases, or without one a smoke run of each thing that it offers.
func (s *Skill) trials() (all []*trial) {
	add := func(t *trial, name string) {
		t.skill, t.outcome = s, &Outcome{Skill: s.Path, Layout: s.Layout, Case: name, Why: []string{}}
		all = append(all, t)
	}
	for _, c := range s.Cases {
		add(&trial{one: c}, c.Name)
	}
	switch {
	case s.Err != nil:
		add(&trial{}, "the test file")
	case len(all) > 0:
	case s.Layout == SkillEngine:
		add(&trial{skip: "its test file names no tool to run"}, "smoke")
	case s.Layout == MCPB:
		add(&trial{skip: "an MCP bundle's server is started with skillbox mcp wrap"}, "smoke")
	default:
		s.smoke(add)
	}
	return all
}

// smoke adds a run for each thing that a bundle offers: scripts are asked for their help, and a manifest's own command gets what its schema
// suggests.
func (s *Skill) smoke(add func(*trial, string)) {
	dir, err := os.Open(s.dir)
	if err != nil {
		s.Err = err
		add(&trial{}, "smoke")
		return
	}
	defer dir.Close()
	b, err := bundle.Read(dir)
	if err != nil {
		s.Err = err
		add(&trial{}, "smoke")
		return
	}
	entries := b.Entries()
	for _, e := range entries {
		c := &Case{Name: "smoke " + e.Name, Entry: e.Script, dir: s.dir}
		if e.Script != "" {
			c.Words = []string{"--help"}
		} else {
			c.params = e.Example()
		}
		add(&trial{one: c, smoke: true}, c.Name)
	}
	if len(entries) == 0 {
		add(&trial{skip: "it holds nothing that could be run"}, "smoke")
	}
}

// try runs one case and judges it.
func (o *Options) try(ctx context.Context, t *trial) {
	out := t.outcome
	switch {
	case ctx.Err() != nil:
		out.Status, out.Why = Skipped, []string{"interrupted"}
		return
	case t.skip != "":
		out.Status, out.Why = Skipped, []string{t.skip}
		return
	case t.one == nil:
		out.Status, out.Why = Errored, []string{t.skill.Err.Error()}
		return
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := o.run(limited, t)
	var skip *skipped
	switch {
	case errors.As(err, &skip):
		out.Status, out.Why = Skipped, []string{skip.why}
		return
	case ctx.Err() != nil:
		out.Status, out.Why = Skipped, []string{"interrupted"}
		return
	case err != nil:
		out.Status, out.Why = Errored, []string{err.Error()}
		return
	case limited.Err() != nil:
		out.Why = append(out.Why, fmt.Sprintf("did not end within %v", timeout))
	}
	out.judge(t, r)
}

// judge notes what came of a run.
func (out *Outcome) judge(t *trial, r *helper.Result) {
	out.Verdict, out.ExitCode, out.result = r.Verdict, r.ExitCode, r
	out.Warnings = append(out.Warnings, r.Warnings...)
	if t.smoke {
		out.Why = append(out.Why, smoke(r)...)
	} else {
		out.Why = append(out.Why, t.one.Expect.judge(r)...)
	}
	out.Status = Passed
	if len(out.Why) > 0 {
		out.Status, out.Stdout, out.Stderr = Failed, head(r.Stdout), head(r.Stderr)
	}
}

// head is the beginning of what a case that failed has printed.
func head(s string) string {
	const most = 4 << 10
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// skipped is why a case cannot be tried in this build.
type skipped struct{ why string }

func (s *skipped) Error() string { return s.why }

// run runs a case in a box.
func (o *Options) run(ctx context.Context, t *trial) (*helper.Result, error) {
	c := t.one
	files := &opened{}
	defer files.close()
	call := client.Call{
		Bundle: t.skill.dir, Mode: orOneshot(o.Mode), Words: c.Words, Entry: c.Entry, MountAt: c.MountAt, Params: c.params, Env: map[string]string{}, Timeout: c.timeout, Inputs: map[string]string{},
	}
	for name, value := range c.Env {
		call.Env[name] = value // and nothing of the environment that the test runs in
	}
	var err error
	if call.Policy, call.PolicyName, err = o.policy(c, files, t.outcome); err != nil {
		return nil, err
	}
	for name, path := range c.Inputs {
		if call.Inputs[name], err = files.below(c.dir, path); err != nil {
			return nil, fmt.Errorf("inputs: %w", err)
		}
	}
	if c.Stdin != nil {
		if call.Stdin, err = files.text("stdin", *c.Stdin); err != nil {
			return nil, err
		}
	}
	if t.skill.Layout == SkillEngine {
		return o.engine(ctx, t, &call)
	}
	if c.Expect.Outputs != nil {
		dir, err := os.MkdirTemp("", "skillbox-test-")
		if err != nil {
			return nil, fmt.Errorf("suite: %w", err)
		}
		defer os.RemoveAll(dir)
		call.Output = dir
	}
	return client.Exec(ctx, call)
}
