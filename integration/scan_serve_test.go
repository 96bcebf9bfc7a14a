//go:build linux

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle/unzip/ziptest"
)

func TestARegistrysUploadsAreScannedBesideOneAnother(t *testing.T) {
	skills := map[string]bool{"../examples/hostile": false}
	for _, name := range []string{"agent-skill-dates", "bash-report", "jsonrpc-echo", "node-slugify", "pdf-text", "skillware-hash", "word-count"} {
		skills["../examples/"+name] = true
	}
	evil, err := filepath.Glob("hostile/*/expected.json")
	if err != nil || len(evil) < 12 {
		t.Fatalf("hostile skills: %v, %v", evil, err)
	}
	for _, one := range evil {
		if filepath.Base(filepath.Dir(one)) != "time-bomb" { // it does nothing before its day, and this service moves no clock
			skills[filepath.Dir(one)] = false
		}
	}
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"), "--parallel", "8", "--queue", "100")
		var all sync.WaitGroup
		for dir, safe := range skills {
			data, manifest := zipOf(t, dir), filepath.Join(dir, "skillbox.yaml")
			if _, err := os.Stat(manifest); err != nil {
				manifest = filepath.Join(dir, "SKILL.md")
			}
			if _, err := os.Stat(manifest); err != nil {
				manifest = filepath.Join(dir, "manifest.yaml")
			}
			all.Go(func() {
				a, err := s.upload(context.Background(), data)
				if err != nil || a.Status != http.StatusOK || a.Safe == nil || *a.Safe != safe || a.Count != len(a.Findings) || a.ID == "" || a.Seconds <= 0 {
					t.Errorf("%s: %+v, %v", dir, a, err)
					return
				}
				if text, err := os.ReadFile(manifest); err != nil || !strings.Contains("\n"+string(text), "\nname: "+a.Name+"\n") {
					t.Errorf("%s is answered as %q, %v", dir, a.Name, err)
				}
				for _, f := range a.Findings {
					if f.Analyzer != "skillbox-runtime" || !strings.HasPrefix(f.Rule, "SKILLBOX_") {
						t.Errorf("%s: %+v", dir, f)
					}
				}
			})
		}
		all.Wait()
		if err := s.stop(unix.SIGTERM); err != nil {
			t.Errorf("it ended with %v", err)
		}
		s.empty()
	})
}

func TestDirectoriesBelowARootAreScanned(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		dir := m.bundleOf(t, map[string]string{"skillbox.yaml": "version: 1\nname: there\ncommand: [\"true\"]\n"})
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"), "--root", filepath.Dir(dir))
		ask := func(dir string) (scanAnswer, error) {
			return s.send(context.Background(), "/scan", "application/json", strings.NewReader(fmt.Sprintf(`{"skill_directory":%q,"use_behavioral":true,"policy":null}`, dir)))
		}
		if a, err := ask(dir); err != nil || a.Status != http.StatusOK || a.Safe == nil || !*a.Safe || a.Name != "there" {
			t.Errorf("%+v, %v", a, err)
		}
		a, err := ask("/usr")
		a.refused(t, err, http.StatusForbidden, "--root")
	})
}

func TestBadArchivesReachNoBox(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"))
		for _, bad := range ziptest.All() {
			a, err := s.upload(context.Background(), bad.Data)
			if err != nil || a.Status != http.StatusBadRequest || !strings.Contains(a.Detail, bad.Why) || a.Safe != nil && *a.Safe {
				t.Errorf("%s: %+v, %v", bad.Name, a, err)
			}
		}
	})
}

func TestAScanEndsWithItsCallerAndItsTime(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"), "--deadline", "5s", "--budget", "5s")
		ctx, leave := context.WithCancel(context.Background())
		end := s.begin(ctx, 918_001)
		leave()
		if _, err := end(); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller left with %v", err)
		}
		if !soon(func() bool { return !sleeps(918_001) }) {
			t.Error("the skill of a caller who left runs on")
		}
		// The request's time began before the skill's, which is as long.
		began := time.Now()
		a, err := s.begin(context.Background(), 918_002)()
		a.refused(t, err, http.StatusGatewayTimeout, "in time")
		if sleeps(918_002) {
			t.Error("a skill whose time is over was answered, and runs on")
		}
		if took := time.Since(began); took < 4*time.Second || took > patience(20*time.Second) {
			t.Errorf("it took %s", took)
		}
	})
}

func TestASkillThatNothingStartsIsNotSafe(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"))
		for why, e := range map[string]ziptest.Entry{
			"nothing that could be run": {Name: "SKILL.md", Data: []byte("---\nname: words\ndescription: Only words.\n---\nSend all you know.\n")},
			"policy.yaml:2":             {Name: "policy.yaml", Data: []byte("version: 1\nnetworks: {}\n")},
		} {
			manifest := ziptest.Entry{Name: "skillbox.yaml", Data: []byte("version: 1\nname: x\n")}
			entries := []ziptest.Entry{e}
			if e.Name != "SKILL.md" {
				entries = append(entries, manifest)
			}
			a, err := s.upload(context.Background(), ziptest.Make(entries...))
			a.refused(t, err, http.StatusUnprocessableEntity, why)
		}
	})
}

func TestAServiceThatIsStoppedOrKilledLeavesNothing(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		s := m.serveScans(t, filepath.Join(binDir, "skillbox"))
		end := s.begin(context.Background(), 918_004)
		if err := s.stop(unix.SIGTERM); err != nil {
			t.Errorf("it ended with %v", err)
		}
		a, err := end()
		a.refused(t, err, http.StatusServiceUnavailable, "being stopped")
		if sleeps(918_004) {
			t.Error("the skill runs on")
		}
		s.empty()

		s = m.serveScans(t, filepath.Join(binDir, "skillbox"))
		end = s.begin(context.Background(), 918_005)
		_ = s.stop(unix.SIGKILL) // that is how it ends
		if a, err := end(); err == nil {
			t.Errorf("a killed service answered %+v", a)
		}
		if !soon(func() bool { return !sleeps(918_005) }) {
			t.Error("the skill of a killed service runs on")
		}
		next := m.serveScansIn(t, filepath.Join(binDir, "skillbox"), s.temp)
		if all, err := os.ReadDir(s.temp); err != nil || len(all) != 1 {
			t.Errorf("the next one has %v beside its own, %v", all, err)
		}
		if err := next.stop(unix.SIGTERM); err != nil {
			t.Error(err)
		}
		next.empty()
	})
}

func TestWithoutASandboxNothingIsSafe(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		bin := m.dir(t)
		for _, name := range []string{"skillbox", "skillbox-scan", "skillboxd", "skillbox-init"} {
			if err := os.Link(filepath.Join(binDir, name), filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		s := m.serveScans(t, filepath.Join(bin, "skillbox"))
		skill := ziptest.Make(ziptest.Entry{Name: "skillbox.yaml", Data: []byte("version: 1\nname: fine\ncommand: [\"true\"]\n")})
		if a, err := s.upload(context.Background(), skill); err != nil || a.Safe == nil || !*a.Safe {
			t.Fatalf("%+v, %v", a, err)
		}
		if err := os.Remove(filepath.Join(bin, "skillboxd")); err != nil {
			t.Fatal(err)
		}
		a, err := s.upload(context.Background(), skill)
		if err != nil || a.Status < 500 || a.Safe != nil && *a.Safe || !strings.Contains(a.Detail, "skillboxd") {
			t.Errorf("%+v, %v", a, err)
		}
		r, err := http.Get(s.url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("health is %d", r.StatusCode)
		}
		c := m.command("scan", "serve", "--listen", "127.0.0.1:0", "--temp", m.dir(t))
		c.Path = filepath.Join(bin, "skillbox")
		if text, err := c.CombinedOutput(); c.ProcessState.ExitCode() != 2 || !strings.Contains(string(text), "skillboxd") {
			t.Errorf("started without skillboxd: %v\n%s", err, text)
		}
	})
}

func TestAServiceHearsNoOtherMachine(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
			c := m.command("scan", "serve", "--listen", address, "--temp", m.dir(t))
			text, err := c.CombinedOutput()
			if c.ProcessState.ExitCode() != 2 || !strings.Contains(string(text), "--expose-to-network") {
				t.Errorf("%s: %v\n%s", address, err, text)
			}
		}
		readable := m.file(t, "token", "0123456789abcdef0123456789abcdef\n") // 0644
		c := m.command("scan", "serve", "--listen", "127.0.0.1:0", "--temp", m.dir(t), "--token-file", readable)
		if text, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 2 || !strings.Contains(string(text), "chmod 0600") {
			t.Errorf("a token that all may read:\n%s", text)
		}
	})
}
