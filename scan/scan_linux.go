package scan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skillbox/audit"
	"skillbox/client"
	"skillbox/helper"
	"skillbox/policy"
)

// Options say what is scanned and how. The zero value of each field but Bundle is a default.
type Options struct {
	Bundle   string        // directory
	Policy   string        // file with the policy that behaviour is compared with; "" is what the bundle declares
	Params   []string      // sets of parameters, each a JSON value; none is one that the bundle's schema suggests
	Commands [][]string    // what to run; none is what the bundle names
	Budget   time.Duration // for all runs together; 0 is DefaultBudget
	Clock    time.Duration // run everything again with the clock ahead by this; 0 is not
}

// DefaultBudget is how long the runs of a scan may take together.
const DefaultBudget = time.Minute

// Bounds of one run's share of the budget.
const (
	leastTime = time.Second
	mostTime  = 20 * time.Second
)

// Scan runs a skill under observation. A Report says what was seen; an error, that the skill was not run as it should have been, and then nothing
// may be concluded.
func Scan(ctx context.Context, o Options) (*Report, error) {
	began := time.Now()
	s, err := readSubject(o.Bundle, o.Policy)
	if err != nil {
		return nil, err
	}
	for _, p := range o.Params {
		if !json.Valid([]byte(p)) {
			return nil, &helper.Error{Message: "parameters are not JSON: " + clean(p)}
		}
	}
	all, err := attempts(s.bundle, s.declared.Command, o.Commands, o.Params)
	if err != nil {
		return nil, err
	}
	library := ""
	if o.Clock > 0 {
		if library, err = faketime(); err != nil {
			return nil, err
		}
	}
	place, err := NewPlace()
	if err != nil {
		return nil, err
	}
	scan := &scanning{subject: s, options: o, place: place, library: library, report: &Report{Manifest: s.bundle.Manifest, Time: began, Runs: []Run{}}}
	err = scan.runs(ctx, all)
	err = errors.Join(err, place.Close())
	if err != nil {
		return nil, err
	}
	return scan.finish(began), nil
}

// scanning is one scan in the making.
type scanning struct {
	*subject
	options  Options
	place    *Place
	library  string
	canaries canaries
	env      map[string]string
	decoys   map[string]string
	found    []Finding
	report   *Report

	incomplete, warned []string
}

// runs makes every attempt, and where the clock is to be moved, each once more.
func (s *scanning) runs(ctx context.Context, all []attempt) error {
	names := append(append(slices.Clone(s.declared.Env.Pass), s.declared.Env.Secrets...), s.bundle.EnvVars...)
	s.env, s.decoys = s.canaries.environment(names), s.canaries.homeSecrets()
	count := len(all)
	if s.library != "" {
		count *= 2
	}
	budget := cmp.Or(s.options.Budget, DefaultBudget)
	deadline := time.Now().Add(budget)
	for i, a := range all {
		left := time.Until(deadline)
		share := left / time.Duration(count) // once gives it more if that is too little: most need less
		if left < leastTime && i > 0 {
			s.incomplete = append(s.incomplete, fmt.Sprintf("%d ways to start the skill were not tried: the time was over (--budget).", len(all)-i))
			return nil
		}
		today, err := s.once(ctx, a, share, 0)
		if err != nil {
			return err
		}
		s.found, count = append(s.found, today...), count-1
		if s.library == "" {
			continue
		}
		then, err := s.once(ctx, a, max(time.Until(deadline)/time.Duration(count), leastTime), s.options.Clock)
		if err != nil {
			return err
		}
		s.found, count = append(s.found, onlyThen(today, then, s.options.Clock)...), count-1
	}
	return nil
}

// once makes one attempt in a fresh world, and judges it.
func (s *scanning) once(ctx context.Context, a attempt, share, clock time.Duration) ([]Finding, error) {
	w, err := s.world(share, s.declared.Timeout)
	if err != nil {
		return nil, err
	}
	defer removeHome(filepath.Dir(w.home)) // Place.Close tells what is left
	w.command = a.argv
	if clock > 0 {
		w.command = later(s.library, clock, a.argv)
	}
	before, err := look(w.home)
	if err != nil {
		return nil, err
	}
	outputs := filepath.Join(filepath.Dir(w.home), "output")
	run, result, full, err := s.watched(ctx, w, a.params, outputs)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	run.Command, run.Clock = cleaned(a.argv), clock
	after, err := look(w.home)
	if errors.Is(err, errHomeFull) {
		full, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	s.report.Runs = append(s.report.Runs, *run)
	s.missed(run, result)
	seen := &sight{
		subject: s.subject, run: run, stdout: result.Stdout, stderr: result.Stderr, changes: changes(before, after), homeFull: full, canaries: &s.canaries,
	}
	if seen.outputs, err = readOutputs(outputs); err != nil {
		return nil, err
	}
	return seen.judge(), nil
}

// missed notes what a run does not show.
func (s *scanning) missed(run *Run, result *client.Result) {
	if run.Dropped > 0 {
		s.incomplete = append(s.incomplete, fmt.Sprintf("%d details of run %s were not recorded: it did too much, or the disk was full.", run.Dropped, run.ID))
	}
	for _, w := range result.Warnings {
		switch {
		case strings.HasSuffix(w, helper.LimitsWarning), strings.Contains(w, "details of what the skill did"):
		case strings.Contains(w, "could be seen"):
			s.incomplete = append(s.incomplete, clean(w))
		default:
			s.warned = append(s.warned, clean(w))
		}
	}
}

// world lays out what the skill finds.
func (s *scanning) world(share, declared time.Duration) (*world, error) {
	dir := filepath.Join(s.place.dir, "world-"+strconv.Itoa(s.place.runs))
	w := &world{home: filepath.Join(dir, "home"), timeout: min(max(share, leastTime), mostTime)}
	if s.declared.Named("timeout") {
		w.timeout = min(w.timeout, declared)
	}
	if err := os.MkdirAll(w.home, 0o700); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	if err := makeHome(w.home, s.decoys); err != nil {
		return nil, err
	}
	shown := append(slices.Clone(s.declared.Filesystem.Read), s.declared.Filesystem.Write...)
	for i, b := range shown {
		host := filepath.Join(dir, "bind-"+strconv.Itoa(i))
		if err := os.Mkdir(host, 0o700); err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		w.binds = append(w.binds, policy.Bind{Host: host, Path: b.Path})
	}
	w.secrets = s.declared.Env.Secrets
	for name := range s.env {
		if !slices.Contains(w.secrets, name) && policy.CheckEnvName(name) == nil {
			w.names = append(w.names, name)
		}
	}
	slices.Sort(w.names)
	return w, nil
}

// finish puts the report together.
func (s *scanning) finish(began time.Time) *Report {
	r := s.report
	r.Findings, r.Compared, r.Unobserved = merge(s.found), s.compare(), s.unobserved()
	r.Incomplete = append([]string{}, s.incomplete...)
	for _, run := range r.Runs {
		for _, e := range run.Events {
			if e.Skill != nil && r.Skill.Digest == "" {
				r.Skill = *e.Skill
			}
		}
	}
	r.Duration = time.Since(began)
	return r
}

func cleaned(argv []string) []string {
	all := make([]string, len(argv))
	for i, word := range argv {
		all[i] = audit.Clean(word, 1024)
	}
	return all
}
