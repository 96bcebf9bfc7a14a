//go:build linux

package integration

import (
	"crypto/sha256"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skillbox/helper"
)

// Group G: what comes out of a box. The races of rows 129 and 130 are run against the collector itself, in package output: here the
// box's processes are gone before anything is collected.

// littered runs an attempt that leaves things in /output, and returns what it answered, the envelope and the caller's directory.
func littered(t *testing.T, m mode, attempt ...string) (map[string]string, *helper.Result, string) {
	t.Helper()
	out, ref := m.dir(t), m.dir(t)
	m.write(t, filepath.Join(ref, "data"), "reference", 0o644)
	got := map[string]string{}
	r := call{
		mode: m, flags: []string{"--output", out, "--input", m.file(t, "in.txt", "input")},
		policy: "version: 1\nfilesystem: {read: [{host: " + ref + ", path: /ref}]}\n",
	}.probe(t, &got, attempt...)
	return got, r, out
}

func TestThreat132OutDeviceSocket(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got, r, out := littered(t, m, "litter")
		for _, made := range []string{"good", "link", "dir link", "fifo", "socket", "escape", "no text", "long", "huge"} {
			if got[made] != "ok" {
				t.Errorf("the attempt itself fails: %s: %s", made, got[made])
			}
		}
		for _, device := range []string{"tty", "hole", "disk"} {
			if got[device] != "EPERM" {
				t.Errorf("%s: %s", device, got[device])
			}
		}
		want := []string{"con", "good", strings.Repeat("l", 255)} // and neither of the twins
		var taken []string
		for _, o := range r.Outputs {
			taken = append(taken, o.Name)
		}
		if slices.Sort(taken); !slices.Equal(taken, want) {
			t.Errorf("reported %q", taken)
		}
		for path, about := range hashes(t, out) {
			if path != out && (!slices.Contains(want, filepath.Base(path)) || !strings.HasPrefix(about, "-rw-r--r-- ")) {
				t.Errorf("%q arrived: %.12s", path, about)
			}
		}
		if string(r.Result) != "" && strings.Contains(string(r.Result), "root:") {
			t.Errorf("the result file's link was followed: %s", r.Result)
		}
	})
}

func TestThreat133OutHardlink(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got, r, _ := littered(t, m, "litter")
		for _, link := range []string{"link to an input", "link to a bind", "link to the bundle", "link to the base"} {
			if got[link] != "EXDEV" && got[link] != "EPERM" {
				t.Errorf("%s: %s", link, got[link])
			}
		}
		if got["twins"] != "ok" || !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "twin1") && strings.Contains(w, "second name") }) {
			t.Errorf("two names of one file: %s, warnings %q", got["twins"], r.Warnings)
		}
	})
}

func TestThreat135OutCountDepth(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got, r, out := littered(t, m, "deep", "/output", "4000")
		if got["made"] != "4000" || len(r.Outputs) > 0 || !said(r, "deeper than") {
			t.Errorf("%v, outputs %v, warnings %q", got, r.Outputs, r.Warnings)
		}
		got, r, _ = littered(t, m, "flat", "/output")
		made, err := strconv.Atoi(got["made"])
		if err != nil || made < max(load(10_000), 1001) || len(r.Outputs) > 0 || !said(r, "more than") {
			t.Errorf("%v, outputs %v, warnings %q", got, r.Outputs, r.Warnings)
		}
		if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
			t.Errorf("%v %v", left, err)
		}
	})
}

func said(r *helper.Result, words string) bool {
	return slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, words) })
}

// inEachMode sees to it that no process, mount or file is left; the collector opens what was locked.
func TestThreat136OutUndeletable(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		got, r, out := littered(t, m, "undeletable", "/output", "/tmp", "/home/skill")
		for _, dir := range []string{"/output", "/tmp", "/home/skill"} {
			if got[dir+" chmod"] != "ok" || got[dir+" immutable"] == "ok" || got[dir+" chown"] == "ok" {
				t.Errorf("%s: %v", dir, got)
			}
		}
		if got["child"] != "ok" {
			t.Errorf("no child: %s", got["child"])
		}
		if text, err := os.ReadFile(filepath.Join(out, "locked/in/side/f")); err != nil || string(text) != "locked" {
			t.Errorf("%q %v; warnings %q", text, err, r.Warnings)
		}
	})
}

func TestThreat138OutDestSymlink(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		victim := m.file(t, "victim", "old")
		for _, force := range []bool{false, true} {
			for name, target := range map[string]string{"good": victim, "con": filepath.Join(filepath.Dir(victim), "new")} {
				out := m.dir(t)
				m.link(t, target, filepath.Join(out, name))
				flags := []string{"--output", out}
				if force {
					flags = append(flags, "--force")
				}
				r := call{mode: m, flags: flags, words: []string{"/skill/probe", "litter"}}.run(t)
				if r.Success != force {
					t.Errorf("force %t: %s %v", force, r.Verdict, r.Error)
				}
				if info, err := os.Lstat(filepath.Join(out, name)); err != nil || (info.Mode()&fs.ModeSymlink != 0) == force {
					t.Errorf("force %t: %v %v", force, info.Mode(), err)
				}
			}
		}
		if left := hashes(t, filepath.Dir(victim)); len(left) != 2 {
			t.Errorf("something appeared beside the victim: %v", left)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "old" {
			t.Errorf("the victim holds %q, %v", text, err)
		}
	})
}

func TestThreat139OutNameInjection(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		_, r, out := littered(t, m, "litter")
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, odd := range []string{"\x1b", "\n", "\xff", "\u202e", `\u001b`} {
			if strings.Contains(string(text), odd) {
				t.Errorf("%q is in the envelope", odd)
			}
		}
		for _, shown := range []string{`"esc\x1b[2J"`, `"new\nline"`, `"bad\xff"`, `"rtl\u202etxt.exe"`} {
			if !said(r, shown) {
				t.Errorf("nothing is said of %s: %q", shown, r.Warnings)
			}
		}
		if left, err := os.ReadDir(out); err != nil || len(left) != 3 {
			t.Errorf("%v %v", left, err)
		}
	})
}

func TestThreat141InputsUnchanged(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		input, ref, bundle := m.file(t, "in.txt", "input"), m.dir(t), m.probeBundle(t)
		m.write(t, filepath.Join(ref, "data"), "reference", 0o666)
		m.write(t, filepath.Join(bundle, "lib.py"), "x = 1\n", 0o666)
		if err := os.Chmod(ref, 0o777); err != nil {
			t.Fatal(err)
		}
		watched := []string{input, ref, bundle, "/usr/bin/true", "/usr/bin/env", "/etc/passwd", "/etc/hosts", filepath.Join(binDir, "skillbox-init"), filepath.Join(binDir, "skillboxd")}
		before := hashes(t, watched...)
		got := call{
			mode: m, bundle: bundle, flags: []string{"--input", input, "--params", "{}"}, env: []string{"KEY=x"},
			policy: "version: 1\nenv: {secrets: [KEY]}\nfilesystem: {read: [{host: " + ref + ", path: /ref}]}\n",
		}.attempts(t, "wreck", "/input/in.txt", "/ref/data", "/skill/lib.py", "/usr/bin/true", "/etc/passwd", "/etc/hosts", "/run/skillbox/init",
			"/run/skillbox/params.json", "/run/secrets/KEY", "/proc/sys/kernel/hostname", "/dev/tty")
		for key, answer := range got {
			// Everybody may write to the terminal device; there is none behind it.
			if answer == "ok" && !strings.HasSuffix(key, "/dev/tty") {
				t.Errorf("%s succeeded", key)
			}
		}
		if after := hashes(t, watched...); !maps.Equal(before, after) {
			t.Errorf("changed: before %v, after %v", before, after)
		}
	})
}

// The envelope travels in one message: nothing that a skill writes may make it too long to be sent.
func TestALargeResultStillGivesAnEnvelope(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for text, n := range map[string]int{"<": 1_900_000, "x": 1_900_000} {
			r := call{mode: m, words: []string{"/skill/probe", "result", text, strconv.Itoa(n)}}.run(t)
			if !r.Success || said(r, "result file") || len(r.Result) <= n {
				t.Errorf("%s: %s %v, %d bytes, %q", text, r.Verdict, r.Error, len(r.Result), r.Warnings)
			}
		}
	})
}

// hashes describes every file below the paths: type, mode, time and content.
func hashes(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range paths {
		err := filepath.WalkDir(p, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			all[path] = info.Mode().String()
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum := sha256.Sum256(data)
				all[path] += " " + info.ModTime().String() + " " + string(sum[:])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
