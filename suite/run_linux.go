package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	Policy   string         // file with the policy of every case that has none, and the limit of what test files and manifests may ask for
	Trust    bool           // let the policies of all test files in Dir, and manifests that ask for something, count as the caller's
	Cases    string         // test file in Dir that is the caller's own word, whatever Trust says; "" is none
	Mode     string         // who runs them, as package client knows it; "" is oneshot, of which nothing stays
	Timeout  time.Duration  // of a case, all in all; 0 is a minute
	Progress func(done, all int, last *Outcome)

	policyName string // Policy as it was given, for messages
}

// ErrNoSkills says that a directory holds none.
var ErrNoSkills error = &helper.Error{Message: "there is no skill to test", Hint: "a skill is a directory with SKILL.md, skillbox.yaml, .skill-engine.toml, or manifest.yaml and skill.py"}

// Run finds the skills of a directory and tries each. An error says that nothing could be tried; when ctx ends, it is ctx's and comes with what
// was found out before.
func Run(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	given := o.Dir
	if err := o.absolute(); err != nil {
		return nil, err
	}
	skills, err := Find(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := o.believe(skills); err != nil {
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
	r := &Report{Directory: given, Began: began.UTC(), DurationMS: milliseconds(began), Skills: len(skills)}
	for _, t := range all {
		if t.outcome.Status == "" {
			t.outcome.Status, t.outcome.Why = Skipped, []string{"interrupted"}
		}
		r.Outcomes = append(r.Outcomes, t.outcome)
	}
	r.count()
	return r, ctx.Err()
}

// absolute has every path of the caller's mean the same wherever it is opened.
func (o *Options) absolute() (err error) {
	o.policyName = o.Policy
	for _, path := range []*string{&o.Dir, &o.Policy, &o.Cases} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err == nil && path != &o.Policy { // which may be /dev/fd/63
			*path, err = filepath.EvalSymlinks(*path)
		}
		if err != nil {
			return fmt.Errorf("suite: %w", err)
		}
	}
	return nil
}

// believe marks the cases whose test file is the caller's word.
func (o *Options) believe(skills []*Skill) error {
	found := o.Cases == ""
	for _, s := range skills {
		for _, c := range s.Cases {
			own := filepath.Join(c.dir, TestFile) == o.Cases
			c.callers, found = o.Trust || own, found || own
		}
	}
	if !found {
		return &helper.Error{Message: o.Cases + " is none of the test files in " + o.Dir, Hint: "it is called " + TestFile + ", and lies in that directory or below it"}
	}
	return nil
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
	switch {
	case ctx.Err() != nil:
		out.Status, out.Why = Skipped, []string{"interrupted"}
		return
	case err != nil:
		out.Status, out.Why = Errored, []string{err.Error()}
		var e *helper.Error
		if errors.As(err, &e) && e.Hint != "" {
			out.Why = append(out.Why, e.Hint)
		}
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

// run runs a case in a box.
func (o *Options) run(ctx context.Context, t *trial) (*helper.Result, error) {
	c := t.one
	files := &opened{}
	defer files.close()
	call := client.Call{
		Bundle: t.skill.dir, Mode: cmp.Or(o.Mode, "oneshot"), Words: c.Words, Entry: c.Entry, MountAt: c.MountAt, Params: c.params, Env: map[string]string{}, Inputs: map[string]string{},
	}
	for name, value := range c.Env {
		call.Env[name] = value // and nothing of the environment that the test runs in
	}
	var err error
	if call.Policy, call.PolicyName, err = o.policy(c, files, t.outcome); err != nil {
		return nil, err
	}
	if call.Timeout, err = c.limit(call.Policy, call.PolicyName, t.outcome); err != nil {
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
		if refused, err := o.byManifest(t, &call, files); refused != nil || err != nil {
			return refused, err
		}
	}
	if c.Expect.Outputs != nil {
		if call.Output, err = files.directory(); err != nil {
			return nil, err
		}
	}
	return client.Exec(ctx, call)
}

// limit is the case's time limit, 0 for the policy's, which only the caller's own word lengthens.
func (c *Case) limit(policy, name string, out *Outcome) (time.Duration, error) {
	if c.timeout == 0 || c.callers {
		return c.timeout, nil
	}
	p, err := parsed(policy, name)
	if err != nil || c.timeout <= p.Timeout {
		return c.timeout, err
	}
	out.Warnings = append(out.Warnings, fmt.Sprintf("the case's timeout of %v is longer than the policy's %v, which holds: name it in the file of --policy", c.timeout, p.Timeout))
	return 0, nil
}
