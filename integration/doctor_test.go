//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skillbox/doctor"
	"skillbox/helper"
)

// output runs a command and returns its stdout and exit code.
func output(t *testing.T, c *exec.Cmd) (string, int) {
	t.Helper()
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// examine runs doctor and decodes its report.
func examine(t *testing.T, c *exec.Cmd) (*doctor.Report, int) {
	t.Helper()
	text, code := output(t, c)
	var r doctor.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return &r, code
}

func finding(t *testing.T, r *doctor.Report, name string) doctor.Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no finding %q in %+v", name, r.Findings)
	return doctor.Finding{}
}

func TestDoctorFindsTheModeOfItsCallerWorking(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		own, other := "rootless", "root"
		if m == asRoot {
			own, other = other, own
		}
		r, code := examine(t, m.command("doctor", "--json"))
		if code != 0 || r.Mode != own || r.Modes[own].State != doctor.Works || r.Modes[other].State != doctor.NotTried {
			t.Errorf("exit %d, mode %s, %+v", code, r.Mode, r.Modes)
		}
		if r.Modes[own].PrepareMS <= 0 || r.Modes[own].RunMS <= 0 {
			t.Errorf("no times: %+v", r.Modes[own])
		}
		for _, f := range r.Findings {
			if f.Status == doctor.Fail {
				t.Errorf("%s fails: %s", f.Name, f.Detail)
			}
		}
		if f := finding(t, r, "limits"); f.Detail != "timeout, output, memory, pids hold, each tried in a box" {
			t.Errorf("limits: %s", f.Detail)
		}
		if m == singleID && (finding(t, r, "sub-ids").Status != doctor.Warn || r.Modes[own].Detail != "with a single id") {
			t.Errorf("single id is not said: %+v", r.Modes[own])
		}
		text, _ := output(t, m.command("doctor"))
		if !strings.Contains(text, "\n"+own+": works") || !strings.Contains(text, "\n"+other+": not tried (run as") || strings.Contains(text, "\x1b") {
			t.Errorf("%s", text)
		}
	})
}

func TestDoctorSaysThatNewuidmapIsMissing(t *testing.T) {
	m := rootless
	leavesNothing(t)
	c := m.command("doctor", "--json")
	c.Env = []string{"PATH=/nonexistent", "HOME=/nonexistent", "XDG_STATE_HOME=" + m.state()}
	r, code := examine(t, c)
	f := finding(t, r, "sub-ids")
	if code != 0 || f.Status != doctor.Warn || !strings.Contains(f.Remedy, "uidmap") && !strings.Contains(f.Remedy, "shadow") {
		t.Errorf("exit %d, %+v", code, f)
	}
}

// asUser are words before a command that make it the ordinary user's.
var asUser = []string{"setpriv", "--reuid", "61234", "--regid", "61234", "--clear-groups"}

// prepared runs skillbox after a shell command in a mount namespace of its own.
func prepared(t *testing.T, first string, words []string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		needs(t, "root", errors.New("nobody else can make the machine worse"))
	}
	script := "mount --make-rprivate / && " + first + ` && exec "$@"`
	words = slices.Concat([]string{"-m", "sh", "-c", script, "sh"}, words, []string{filepath.Join(binDir, "skillbox")}, args)
	c := exec.Command("unshare", words...)
	c.Env, c.Dir = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}, "/"
	return c
}

func TestDoctorNamesWhatAContainerTakesAway(t *testing.T) {
	for _, c := range []struct {
		name, first string
		words       []string
		finding     string
		says        string
	}{
		{"a covered /proc", "mount -t tmpfs none /proc/fs", asUser, "fresh /proc", "operation not permitted"},
		{"no user namespaces left", "true", slices.Concat([]string{"unshare", "-U", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"`, "sh"}), "namespace limits", "user.max_user_namespaces is 0"},
		{"root without CAP_SYS_ADMIN", "true", []string{"setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"}, "capabilities", "CAP_SYS_ADMIN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			r, code := examine(t, prepared(t, c.first, c.words, "doctor", "--json"))
			f := finding(t, r, c.finding)
			if code != 1 || r.Works() || f.Status != doctor.Fail || !strings.Contains(f.Detail, c.says) || f.Remedy == "" {
				t.Errorf("exit %d, %+v, %+v", code, r.Modes, f)
			}
		})
	}
}

func TestDoctorJudgesTheHostPolicyThatSkillboxdReads(t *testing.T) {
	leavesNothing(t)
	const first = "mount -t tmpfs none /etc/skillbox && echo 'version: 1\ntimeuot: 3s' > /etc/skillbox/host.yaml"
	if _, err := os.Stat("/etc/skillbox"); err != nil && os.Getuid() == 0 {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	r, _ := examine(t, prepared(t, first, asUser, "doctor", "--json"))
	if f := finding(t, r, "host policy"); f.Status != doctor.Fail || !strings.Contains(f.Detail, `/etc/skillbox/host.yaml:2:1: unknown key "timeuot"`) {
		t.Errorf("%+v", f)
	}
}

func TestDoctorLeavesNothingWhenItIsInterrupted(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for _, after := range []time.Duration{5, 20, 60, 120, 240, 400} {
			c := m.command("doctor")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after * time.Millisecond)
			// It may have ended by itself.
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
		}
	})
}

func TestPoliciesAreCheckedWhereNoSandboxWorks(t *testing.T) {
	leavesNothing(t)
	noAdmin := []string{"setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"}
	bad := asRoot.file(t, "bad.yaml", "version: 1\ntimeuot: 3s\nresources: {memory: lots}\n")
	text, code := output(t, prepared(t, "true", noAdmin, "policy", "check", bad))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if code != 1 || len(lines) != 2 || !strings.HasPrefix(lines[0], bad+":2:1: ") || !strings.HasPrefix(lines[1], bad+":3:21: ") {
		t.Errorf("exit %d: %s", code, text)
	}
	text, code = output(t, prepared(t, "true", noAdmin, "policy", "check", "--json", bad))
	var checked helper.PolicyChecked
	if err := json.Unmarshal([]byte(text), &checked); err != nil || code != 1 || checked.Valid || len(checked.Errors) != 2 {
		t.Errorf("exit %d, %v: %s", code, err, text)
	}
	if text, code = output(t, prepared(t, "true", noAdmin, "policy", "schema")); code != 0 || !json.Valid([]byte(text)) {
		t.Errorf("schema: exit %d", code)
	}
}

func TestAFirstPolicyCanBeUsedAtOnce(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		path := filepath.Join(m.dir(t), "policy.yaml")
		if _, code := output(t, m.command("policy", "init", path)); code != 0 {
			t.Fatalf("init: exit %d", code)
		}
		if text, code := output(t, m.command("policy", "check", path)); code != 0 || !strings.Contains(text, "name: my-skill") {
			t.Errorf("check: exit %d: %s", code, text)
		}
		if _, code := output(t, m.command("policy", "init", path)); code != helper.CodeFailed {
			t.Errorf("init over it: exit %d", code)
		}
		r := call{mode: m, flags: []string{"--policy", path}, words: []string{"true"}}.run(t)
		if !r.Success {
			t.Errorf("%+v", r.Error)
		}
	})
}

func TestTheThreeProgramsTellOneVersion(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		text, code := output(t, m.command("version", "--json"))
		var v struct {
			Client, Skillboxd, Init string
			Warnings                []string
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil || code != 0 {
			t.Fatalf("exit %d, %v: %s", code, err, text)
		}
		if v.Client == "" || v.Skillboxd != v.Client || v.Init != v.Client || len(v.Warnings) > 0 {
			t.Errorf("%s", text)
		}
	})
}
