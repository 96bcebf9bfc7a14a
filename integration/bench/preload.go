package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// skillSource is a small skill with the imports of many.
const skillSource = `import json, re, csv, sqlite3
import sys


def main():
    db = sqlite3.connect(":memory:")
    db.execute("create table words (word text, n integer)")
    for row in csv.reader(["a,1", "b,2"]):
        db.execute("insert into words values (?, ?)", row)
    total, = db.execute("select sum(n) from words").fetchone()
    json.dump({"total": total, "match": bool(re.match("a+b", "aab"))}, sys.stdout)


main()
`

// preload measures a python skill: in a box of its own, a prepared and a preloaded one, each call beside the same script without a sandbox.
func (w *work) preload(f *figures) error {
	r := &report{}
	defer func() { f.Preload = r.lines }()
	if err := w.buildCalls(); err != nil {
		return err
	}
	bundle := filepath.Join(w.dir, "python")
	files := map[string]string{
		"python/skill.py": skillSource, "prepare.yaml": "version: 1\nwarm: {ready: 4}\n", "preload.yaml": "version: 1\nwarm: {ready: 4, preload: true}\n",
	}
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	times := max(*runs, 5) * 5
	for _, pace := range []struct {
		name  string
		every time.Duration
	}{{"20 a second", 50 * time.Millisecond}, {"one after the other", 0}} {
		r.title("calls of a python skill that imports json, re, csv, sqlite3 by the Go client, %s; load %s", pace.name, load())
		for _, k := range []struct {
			name, mode, policy string
			times              int
			most               float64 // times the script alone; 0 for no bar
		}{
			{"cold", "oneshot", "prepare.yaml", times / 5, 0},
			{"prepared", "user", "prepare.yaml", times, 1.15},
			{"preloaded", "user", "preload.yaml", times, 0.25},
		} {
			a, err := w.calling(map[string]any{
				"Bundle": bundle, "Policy": filepath.Join(w.dir, k.policy), "Mode": k.mode, "Times": k.times, "Every": pace.every,
				"Words": []string{"python3", "skill.py"}, "Plain": []string{"/usr/bin/python3", filepath.Join(bundle, "skill.py")},
			})
			if err != nil {
				return fmt.Errorf("preload: %w", err)
			}
			call, plain := median(a.Call), median(a.Plain)
			r.line(plain, "ms", "the script without a sandbox, median of %d", k.times)
			r.line(call, "ms", "a call, %s, median (%d of %d boxes were that)", k.name, a.Starts[k.name], k.times)
			ratio := fmt.Sprintf("%.2f times the script alone", call/plain)
			if k.most > 0 && pace.every > 0 {
				r.bar(ratio, fmt.Sprintf("at most %g times", k.most), call <= k.most*plain)
			} else {
				r.bar(ratio, "", false)
			}
			slices.Sort(a.Call)
			r.line(a.Call[len(a.Call)*99/100], "ms", "a call, %s, 99th percentile", k.name)
			if k.name == "preloaded" && pace.every == 0 {
				if err := memoryOfWaiting(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// memoryOfWaiting reads what preloaded interpreters that wait have to themselves, if we may.
func memoryOfWaiting(r *report) error {
	if os.Getuid() != 0 {
		return nil
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var private []float64
	for _, name := range processes {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		dir := filepath.Dir(name)
		stat, _ := os.ReadFile(dir + "/stat")
		if string(words) != "python3\x00skill.py\x00" || !bytes.Contains(stat, []byte(") T ")) {
			continue
		}
		text, err := os.ReadFile(dir + "/smaps_rollup")
		if err != nil {
			continue
		}
		kib := 0
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) == 3 && strings.HasPrefix(fields[0], "Private_") {
				n, err := strconv.Atoi(fields[1])
				if err != nil {
					return err
				}
				kib += n
			}
		}
		private = append(private, float64(kib)/1024)
	}
	if len(private) == 0 {
		return fmt.Errorf("no preloaded interpreter waits after the last call")
	}
	r.limit(median(private), "MiB", 12, "private memory of a preloaded python that waits, median of %d", len(private))
	return nil
}
