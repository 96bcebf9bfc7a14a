package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// audit measures what the audit log costs: a call of a service with boxes ready, and a skill that makes many system calls.
func (w *work) audit(f *figures) error {
	r := &report{}
	defer func() { f.Audit = r.lines }()
	if err := w.buildCalls(); err != nil {
		return err
	}
	for _, part := range []func(*report) error{w.recordedCalls, w.watchedCalls} {
		if err := part(r); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

// logsIn has logs made in a directory, until the returned function is called. Root's have one place, where the directory is shown.
func logsIn(dir string) (undo func() error, err error) {
	if os.Getuid() != 0 {
		return func() error { return nil }, os.Setenv("XDG_STATE_HOME", dir)
	}
	const at = "/var/log/skillbox"
	if err := errors.Join(os.MkdirAll(at, 0o700), unix.Mount(dir, at, "", unix.MS_BIND, "")); err != nil {
		return nil, err
	}
	return func() error { return unix.Unmount(at, unix.MNT_DETACH) }, nil
}

// recordedCalls tells what recording takes of a call, which waits for its grant's record and for its end's.
func (w *work) recordedCalls(r *report) error {
	times := max(*runs, 5) * 5
	r.title("what the log takes of a call of true, 20 a second by the Go client; load %s", load())
	memory := filepath.Join(w.dir, "log-memory")
	disk := filepath.Join(w.dir, "log-disk")
	if err := errors.Join(os.Mkdir(memory, 0o700), os.Mkdir(disk, 0o700)); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := unix.Mount("none", memory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
			return err
		}
		defer func() { _ = unix.Unmount(memory, unix.MNT_DETACH) }() // the namespace goes with us
	}
	for _, place := range []struct{ name, dir string }{{"on the disk", disk}, {"in memory (tmpfs)", memory}} {
		if place.dir == memory && os.Getuid() != 0 {
			continue
		}
		undo, err := logsIn(place.dir)
		if err != nil {
			return err
		}
		a, err := w.calling(map[string]any{"Bundle": w.empty, "Words": []string{"/usr/bin/true"}, "Times": times, "Every": 50 * time.Millisecond})
		time.Sleep(3 * time.Second) // the service leaves, with its log
		if err = errors.Join(err, undo()); err != nil {
			return err
		}
		r.line(median(a.Call), "ms", "a call, log %s, median of %d (%d found a ready box)", place.name, times, a.Ready)
		r.limit(median(a.Phases["audit_ms"]), "ms", 0.3, "of that, recording, median")
	}
	return nil
}

// watchedCalls measures system calls within boxes at each level, in turns, against the level that watches none.
func (w *work) watchedCalls(r *report) error {
	b := &networkBench{work: w}
	if err := os.MkdirAll(filepath.Dir(b.inside()), 0o755); err != nil {
		return err
	}
	if err := b.buildInside(); err != nil {
		return err
	}
	const stats, opens = 100_000, 20_000
	levels := []struct {
		name, policy, do string
		times            int
		most             float64 // percent above none; 0 for no bar
		rounds           int
	}{
		{"stat, syscalls: none", "{syscalls: none}", "stat", stats, 0, 15},
		{"stat, syscalls: denied (the default)", "{syscalls: denied}", "stat", stats, 3, 15},
		{"stat, syscalls: security", "{syscalls: security}", "stat", stats, 10, 15},
		{"stat, syscalls: all", "{syscalls: all}", "stat", stats, 0, 3},
		{"open and close, files: none", "{syscalls: none}", "open", opens, 0, 5},
		{"open and close, files: writes", "{syscalls: security, files: writes}", "open", opens, 0, 5},
		{"open and close, files: all", "{syscalls: security, files: all}", "open", opens, 0, 5},
	}
	undo, err := logsIn(filepath.Join(w.dir, "log-disk"))
	if err != nil {
		return err
	}
	defer func() { _ = undo() }() // the namespace goes with us
	took := map[string][]float64{}
	refused := map[string]string{}
	for round := range 15 {
		for _, l := range levels {
			if round >= l.rounds || refused[l.name] != "" {
				continue
			}
			ms, no, err := w.within(b, l.policy, l.do, l.times)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			if refused[l.name] = no; no == "" {
				took[l.name] = append(took[l.name], ms)
			}
		}
	}
	r.title("%d stat(2), or %d times open(2) and close(2), by a skill, at each level of audit; in turns, load %s", stats, opens, load())
	var none float64
	for _, l := range levels {
		if refused[l.name] != "" {
			r.title("%s: not measured, for it is refused here: %s", l.name, refused[l.name])
			continue
		}
		ms := median(took[l.name])
		r.line(ms, "ms", "%s, median of %d", l.name, len(took[l.name]))
		if strings.HasSuffix(l.name, ": none") {
			none = ms
			continue
		}
		more := 100 * (ms - none) / none
		bar := ""
		if l.most > 0 {
			bar = fmt.Sprintf("at most +%g %%", l.most)
		}
		r.bar(fmt.Sprintf("%+.1f %%", more), bar, more <= l.most)
		if l.do == "open" && strings.HasSuffix(l.name, ": all") {
			r.line(float64(l.times)/ms*1000, "/s", "opens a second with files: all, each of them decided, made and recorded")
		}
	}
	return nil
}

// within has a box of its own make system calls, and returns what they took by the clock inside; or why the level is refused.
func (w *work) within(b *networkBench, audit, do string, times int) (ms float64, refused string, err error) {
	policy := filepath.Join(w.dir, "audit.yaml")
	text := fmt.Sprintf("version: 1\nenforcement: best-effort\ntimeout: 5m\nresources: {cpu: %d, memory: 1Gi}\naudit: %s\n", runtime.NumCPU(), audit)
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		return 0, "", err
	}
	c := exec.Command(filepath.Join(w.bin, "skillbox"), "exec", "--json", "--mode", "oneshot", "--policy", policy, filepath.Dir(b.inside()), "--", "./inside")
	c.Stdin = strings.NewReader(fmt.Sprintf(`{"Do":%q,"To":"127.0.0.1:1","Times":%d}`, do, times))
	out, err := c.Output()
	var answered result
	if err2 := json.Unmarshal(out, &answered); err2 != nil {
		return 0, "", errors.Join(err, err2)
	}
	if answered.Verdict == "refused" && answered.Error != nil {
		return 0, answered.Error.Message, nil
	}
	var told struct {
		Micros []float64
		Error  string
	}
	if err := json.Unmarshal([]byte(answered.Stdout), &told); err != nil || told.Error != "" || len(told.Micros) != 1 {
		return 0, "", fmt.Errorf("%s: %s %v: %w", answered.Verdict, answered.Stdout, answered.Error, err)
	}
	return told.Micros[0] / 1000, "", nil
}
