//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/integration/space"
)

// says writes the service's configuration.
func (s *system) says(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "service.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAQuotaIsRefusedWithAWord(t *testing.T) {
	s := theSystem(t)
	s.says(t, "version: 1\nquota: {calls: 3, memory: 1Gi, pids: 200, connections: 6}\n")
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
	policy := func(text string) []string {
		return []string{"--policy", asRoot.file(t, "policy.yaml", "version: 1\nenforcement: best-effort\n"+text)}
	}
	s.as(bob).refused(t, "quota.memory", policy("resources: {memory: 2Gi}\n"), bundle, "./echo.sh", "a")
	s.as(bob).refused(t, "quota.pids", policy("resources: {pids: 201}\n"), bundle, "./echo.sh", "a")
	var running []*background
	for i := range 3 {
		b := asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", fmt.Sprint(i)))
		b.expect(t, "ready\n")
		running = append(running, b)
	}
	r := s.as(bob).refused(t, "quota.calls: 3 of your calls run", nil, bundle, "./echo.sh", "a")
	if !strings.Contains(r.Error.Hint, "/etc/skillbox/service.yaml") {
		t.Errorf("%+v", r.Error)
	}
	if r := s.as(carol).run(t, nil, bundle, "./echo.sh", "a"); r.Stdout != "a\n" {
		t.Errorf("another user: %+v", r)
	}
	var idle []int
	for range 10 {
		fd, err := s.connectAs(bob)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, fd)
	}
	s.as(bob).refused(t, "quota.connections: 6 of your connections are open", nil, bundle, "./echo.sh", "a")
	for _, fd := range idle {
		unix.Close(fd)
	}
	running[0].end(t)
	if !soon(func() bool {
		r, err := s.as(bob).ask(nil, bundle, "./echo.sh", "a")
		return err == nil && r.Stdout == "a\n"
	}) {
		t.Error("a quota is not given back")
	}
	for _, b := range running[1:] {
		b.end(t)
	}
	// What has been spent is given back however a call ends.
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			for n := range load(10) {
				b := asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", "b"))
				time.Sleep(time.Duration(n*7) * time.Millisecond)
				b.end(t)
			}
		})
	}
	wait.Wait()
	if !soon(func() bool {
		r, err := s.as(bob).ask(policy("resources: {memory: 1Gi, pids: 200}\n"), bundle, "./echo.sh", "a")
		return err == nil && r.Stdout == "a\n"
	}) {
		t.Error("after clients that went away, not all of the quota is there")
	}
}

// A session is its user's, and counts as a call as long as it lasts.
func TestTheSystemServiceHoldsSessions(t *testing.T) {
	s := theSystem(t)
	s.says(t, "version: 1\nquota: {calls: 1}\n")
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating})
	out, err := s.as(bob).command("session", "start", "--mode", "system", bundle).Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	in := func(uid int, words ...string) (string, error) {
		out, err := s.as(uid).command(append([]string{"session", "exec", "--mode", "system", id, "--"}, words...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := in(bob, "/bin/sh", "-c", "echo kept > /tmp/state"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := in(bob, "/bin/cat", "/tmp/state"); err != nil || out != "kept\n" {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := in(carol, "/bin/cat", "/tmp/state"); err == nil {
		t.Errorf("another user's call: %s", out)
	}
	s.as(bob).refused(t, "quota.calls: 1 of your calls run", nil, bundle, "./main.sh", "a")
	if out, err := s.as(bob).command("session", "stop", "--mode", "system", id).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if !soon(func() bool {
		r, err := s.as(bob).ask(nil, bundle, "./main.sh", "a")
		return err == nil && r.Stdout == "a\n"
	}) {
		t.Error("a session that ended still counts")
	}
}

func TestTheServiceServesThoseWhomTheAdministratorLists(t *testing.T) {
	s := theSystem(t)
	s.says(t, fmt.Sprintf("version: 1\nallow: {users: [sbtest, \"%d\"], groups: [\"%d\"]}\n", bob, 70001))
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating})
	for _, c := range []*systemCaller{s.as(alice), s.as(bob), s.as(carol, 70000, 70001)} {
		if r := c.run(t, nil, bundle, "./main.sh", "a"); r.Stdout != "a\n" {
			t.Errorf("user %d: %+v", c.uid, r)
		}
	}
	dave := s.as(carol+1, 70000)
	dave.refused(t, "does not serve you", nil, bundle, "./main.sh", "a")
	// In mode auto it is as if there were none.
	if r, err := envelope(dave.command("exec", "--json", bundle, "--", "./main.sh", "a")); err != nil || r.Stdout != "a\n" {
		t.Errorf("%v, %+v", err, r)
	}
	// What the file says now holds for the next call.
	s.says(t, "version: 1\nallow: {users: [nobody]}\n")
	s.as(bob).refused(t, "does not serve you", nil, bundle, "./main.sh", "a")
	s.says(t, "version: 1\nallow: {uesrs: [nobody]}\n")
	s.as(bob).refused(t, `service.yaml:2:9: allow: unknown key "uesrs"`, nil, bundle, "./main.sh", "a")
	if err := errors.Join(os.WriteFile(filepath.Join(s.dir, "service.yaml"), []byte("version: 1\n"), 0o644), os.Chmod(filepath.Join(s.dir, "service.yaml"), 0o666)); err != nil {
		t.Fatal(err)
	}
	s.as(bob).refused(t, "only root may write", nil, bundle, "./main.sh", "a")
	if err := os.Remove(filepath.Join(s.dir, "service.yaml")); err != nil {
		t.Fatal(err)
	}
	dave.run(t, nil, bundle, "./main.sh", "a")
}

func TestRootAndOtherNamespacesAreServedByTheirOwn(t *testing.T) {
	s := startSystem(t)
	bundle := asRoot.sharedBundle(t)
	r := s.as(0).refused(t, "serves ordinary users", nil, bundle, "true")
	if !strings.Contains(r.Error.Hint, "--mode user or oneshot") {
		t.Errorf("%+v", r.Error)
	}
	c := s.as(0).command("exec", "--json", bundle, "--", "true")
	if r, err := envelope(c); err != nil || !r.Success || r.Sandbox.Mode != "root" {
		t.Errorf("root in mode auto: %v, %+v", err, r)
	}
	for what, flags := range map[string][]string{"network": {"-n"}, "mount": {"-m"}, "user": {"-U", "-r"}} {
		c := s.as(bob).call([]string{"--json"}, bundle, "true")
		words := append([]string{"unshare"}, flags...)
		if what != "user" { // which anybody may make
			c.SysProcAttr = nil
			words = append(words, "setpriv", fmt.Sprintf("--reuid=%d", bob), fmt.Sprintf("--regid=%d", bob), "--clear-groups")
		}
		c.Args = append(append(words, c.Path), c.Args[1:]...)
		c.Path = "/usr/bin/unshare"
		r, err := envelope(c)
		// In a user namespace root's files are nobody's, so that the client asks no further.
		if err != nil || r.Success || !(strings.Contains(r.Error.Message, "another "+what+" namespace") || what == "user" && strings.Contains(r.Error.Message, "root's")) {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
	}
	// A group that the worker does not have is not lent.
	s.as(bob).run(t, nil, bundle, "true")
	other := s.as(bob)
	other.gid = 70001
	other.refused(t, "this call comes in group 70001", nil, bundle, "true")
}

func TestCeilingsDifferByUserAndGroup(t *testing.T) {
	s := theSystem(t)
	if _, err := os.Stat("/etc/skillbox"); err != nil {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	say := func(name, text string) error {
		return os.WriteFile(filepath.Join("/etc/skillbox", name), []byte("version: 1\n"+text), 0o644)
	}
	group, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	groups := asRoot.file(t, "group", string(group)+"sbred:x:70001:\nsbblue:x:70002:sbtest\n")
	host, err := space.New(unix.CLONE_NEWNS, func() error {
		return errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/etc/skillbox", "tmpfs", 0, "mode=755"), unix.Mount(groups, "/etc/group", "", unix.MS_BIND, ""),
			os.Mkdir("/etc/skillbox/host.d", 0o755), say("host.yaml", "timeout: 10s\n"),
			say(fmt.Sprintf("host.d/user-%d.yaml", bob), "timeout: 20s\n"), say("host.d/group-sbred.yaml", "timeout: 40s\nresources: {pids: 40}\n"),
			say("host.d/group-sbblue.yaml", "timeout: 50s\nresources: {pids: 30}\n"), say("host.d/group-70003.yaml", "timeout: 60s\n"), os.WriteFile("/etc/skillbox/host.d/notes.txt", nil, 0o644),
		)
	})
	needs(t, "a world of namespaces", err)
	s.within = host.Run
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": repeating})
	try := func(c *systemCaller, timeout, pids, want string) {
		t.Helper()
		policy := []string{"--policy", asRoot.file(t, "policy.yaml", "version: 1\nenforcement: best-effort\ntimeout: "+timeout+"\nresources: {pids: "+pids+"}\n")}
		if want == "" {
			c.run(t, policy, bundle, "./main.sh", "a")
			return
		}
		if r := c.refused(t, "not permitted on this host", policy, bundle, "./main.sh", "a"); !strings.Contains(r.Error.Hint, want) {
			t.Errorf("%+v does not name %s", r.Error, want)
		}
	}
	try(s.as(carol), "10s", "60", "")
	try(s.as(carol), "11s", "60", "/etc/skillbox/host.yaml")
	try(s.as(bob, 70001), "20s", "60", "") // the user's own alone
	try(s.as(bob, 70001), "21s", "60", fmt.Sprintf("user-%d.yaml", bob))
	try(s.as(carol, 70001), "40s", "40", "") // in place of the host's
	try(s.as(carol, 70001), "41s", "40", "group-sbred.yaml")
	try(s.as(carol, 70001), "40s", "41", "group-sbred.yaml")
	try(s.as(carol, 70003), "60s", "60", "") // a group without a name
	// In both groups both hold: by what the process has, and by /etc/group.
	try(s.as(alice, 70001), "40s", "30", "")
	try(s.as(alice, 70001), "41s", "30", "group-sbred.yaml")
	try(s.as(alice, 70001), "40s", "31", "group-sbblue.yaml")
	try(s.as(alice), "50s", "30", "")
	// A file that is nobody's refuses everybody: it was written to hold somebody.
	for name, want := range map[string]string{"host.d/group-sbgreen.yaml": "knows no group sbgreen", "host.d/anyone.yaml": "nobody's ceiling"} {
		if err := host.Run(func() error { return say(name, "timeout: 1s\n") }); err != nil {
			t.Fatal(err)
		}
		s.as(carol).refused(t, want, nil, bundle, "./main.sh", "a")
		if err := host.Run(func() error { return os.Remove("/etc/skillbox/" + name) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := host.Run(func() error { return os.Chmod("/etc/skillbox/host.d/group-sbred.yaml", 0o666) }); err != nil {
		t.Fatal(err)
	}
	s.as(carol, 70001).refused(t, "only its owner may write", nil, bundle, "./main.sh", "a")
}

// A user's boxes are below a group of root's, and the user gets at no other. Where the machine's groups are of version 1, those of version 2 have no
// controllers, and no limits.
func TestThreat243CgroupArguments(t *testing.T) {
	s := theSystem(t)
	s.says(t, "version: 1\nquota: {memory: 1Gi, pids: 500}\n")
	limited := unified()
	if !limited {
		host, err := space.New(unix.CLONE_NEWNS, func() error {
			return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""))
		})
		needs(t, "cgroup v2", err)
		s.within = host.Run
	}
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting})
	start := func() (b *background) {
		t.Helper()
		_ = s.within(func() error { b = asRoot.prepared(t, s.as(bob).call(nil, bundle, "./main.sh", "a")); return nil })
		b.expect(t, "ready\n")
		return b
	}
	b := start()
	// Ids of calls are the service's own: nothing else is taken for one.
	for _, id := range []string{"../../system.slice", "1", "/", "..", "a\nb", strings.Repeat("x", 5000)} {
		c := s.as(bob).command("kill", id)
		var out []byte
		err := s.within(func() (err error) {
			out, err = c.CombinedOutput()
			return err
		})
		if err == nil || !strings.Contains(string(out), "no call or session") {
			t.Errorf("kill %.40q: %v: %s", id, err, out)
		}
	}
	group := groupOf(t, s.workers(bob)[0])
	if filepath.Base(group) != "worker" || !strings.Contains(group, fmt.Sprintf("/user-%d/", bob)) {
		t.Fatalf("the worker is in %s", group)
	}
	own := filepath.Join("/sys/fs/cgroup", filepath.Dir(group))
	user := filepath.Dir(own)
	limits := map[string]string{"memory.max": fmt.Sprint((1 << 30) + 512<<20), "pids.max": fmt.Sprint(500 + 2048)}
	err := s.within(func() error {
		for file, want := range limits {
			got, err := os.ReadFile(filepath.Join(user, file))
			if errors.Is(err, os.ErrNotExist) && !limited {
				continue
			}
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("%v: %s is %s, not %s", err, file, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	attempt := s.as(bob).command()
	attempt.Path, attempt.Args = "/bin/sh", []string{"sh", "-c", `
cd "$1" || exit 1
mkdir mine || echo "cannot make a group of its own"
for file in ../memory.max ../pids.max ../cgroup.procs ../cgroup.subtree_control ../cgroup.max.descendants memory.max pids.max cgroup.max.descendants ../../cgroup.procs; do
	(echo 1 >"$file") 2>/dev/null && echo "wrote $file"
done
(echo 1 >cgroup.procs) 2>/dev/null && echo "moved pid 1"
(echo $$ >worker/cgroup.procs) 2>/dev/null && echo "moved itself in"
mkdir ../more 2>/dev/null && echo "made a group beside it"
true`, "sh", own}
	var out []byte
	err = s.within(func() (err error) {
		out, err = attempt.CombinedOutput()
		return err
	})
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	r := s.as(bob).run(t, nil, bundle, "true")
	if layer := r.Sandbox.Layers["memory"]; limited && !strings.Contains(layer, "cgroup") {
		t.Errorf("a box is held by %q", layer)
	}
	b.end(t)
	// What a service that was killed has left, the next one removes.
	b = start()
	s.kill(t)
	b.end(t)
	left := func() bool {
		var st unix.Stat_t
		return s.within(func() error { return unix.Stat(user, &st) }) == nil
	}
	if !left() {
		t.Error("nothing is left to be swept")
	}
	s.begin(t)
	if !soon(func() bool { return !left() }) {
		t.Errorf("%s is left", user)
	}
}

// groupOf is a process's group of version 2.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return group
		}
	}
	t.Fatalf("no group of version 2: %s", text)
	return ""
}

// Each of several users meets another quota, of the file's or of one's own.
func TestQuotasDifferByUserAndGroup(t *testing.T) {
	s := theSystem(t)
	group, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	groups := asRoot.file(t, "group", string(group)+"sbred:x:70001:\nsbblue:x:70002:sbtest\n")
	host, err := space.New(unix.CLONE_NEWNS, func() error {
		return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(groups, "/etc/group", "", unix.MS_BIND, ""))
	})
	needs(t, "a world of namespaces", err)
	s.within = host.Run
	const everybody = "version: 1\nquota:\n  calls: 2\n  memory: 1Gi\n"
	says := fmt.Sprintf(everybody+"  users:\n    %d: {calls: 3}\n  groups:\n    sbred: {memory: 256Mi, calls: 20}\n    sbblue: {calls: 1}\n    \"70003\": {pids: 70}\n", bob)
	s.says(t, says)
	s.begin(t)
	bundle := asRoot.bundleOf(t, map[string]string{"main.sh": lasting, "echo.sh": repeating})
	policy := func(text string) []string {
		return []string{"--policy", asRoot.file(t, "policy.yaml", "version: 1\nenforcement: best-effort\nresources: {"+text+"}\n")}
	}
	small := policy("memory: 64Mi")
	// exceed makes as many calls as a caller may, and then one more.
	exceed := func(c *systemCaller, calls int, from string) {
		t.Helper()
		var running []*background
		for i := range calls {
			var b *background
			if err := s.within(func() error {
				b = asRoot.prepared(t, c.call(small, bundle, "./main.sh", fmt.Sprint(i)))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			b.expect(t, "ready\n")
			running = append(running, b)
		}
		if r := c.refused(t, fmt.Sprintf("quota.calls: %d of your calls run", calls), small, bundle, "./echo.sh", "a"); !strings.Contains(r.Error.Hint, "service.yaml ("+from+")") {
			t.Errorf("%+v does not name %s", r.Error, from)
		}
		for _, b := range running {
			b.end(t)
		}
	}
	exceed(s.as(carol), 2, "quota")
	exceed(s.as(bob, 70001), 3, fmt.Sprintf("quota.users.%d", bob)) // the user's own alone
	s.as(bob, 70001).run(t, policy("memory: 1Gi"), bundle, "./echo.sh", "a")
	// By what the process has, and by /etc/group: of both groups each holds.
	exceed(s.as(alice, 70001), 1, "quota.groups.sbred, quota.groups.sbblue")
	s.as(alice, 70001).refused(t, "quota.memory", policy("memory: 257Mi"), bundle, "./echo.sh", "a")
	s.as(carol+1, 70001).refused(t, "quota.memory: your calls have 0 of 256Mi", policy("memory: 257Mi"), bundle, "./echo.sh", "a")
	s.as(carol+2, 70003).refused(t, "quota.pids: your calls have 0 of 70", policy("pids: 71"), bundle, "./echo.sh", "a") // a group without a name
	s.as(carol+2, 70003).refused(t, "quota.memory: your calls have 0 of 1Gi", policy("memory: 2Gi"), bundle, "./echo.sh", "a")
	// A name that nobody has refuses whoever comes anew: it was written to hold somebody.
	for wrong, want := range map[string]string{
		"  users:\n    nobody: {calls: 1}\n    alcie: {calls: 1}\n": "service.yaml:7:5: quota.users: /etc/passwd knows no user alcie",
		"  groups: {sbgreen: {calls: 1}}\n":                         "service.yaml:5:12: quota.groups: /etc/group knows no group sbgreen",
		"  users: {sbtest: {calls: 1, pids: none}}\n":               "service.yaml:5:36: quota.users.sbtest.pids",
	} {
		s.says(t, everybody+wrong)
		s.as(carol+3).refused(t, want, nil, bundle, "./echo.sh", "a")
	}
	s.stop(t)
	out, err := s.cmdOnce(t)
	if err == nil || !strings.Contains(out, "quota.") {
		t.Errorf("a service with such a file starts: %v: %s", err, out)
	}
}

// cmdOnce starts a service that is to end by itself, and returns what it says.
func (s *system) cmdOnce(t *testing.T) (out string, err error) {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "skillboxd"), append([]string{"system"}, s.flags...)...)
	late := time.AfterFunc(patience(10*time.Second), func() {
		t.Error("it does not end")
		if c.Process != nil {
			_ = c.Process.Kill()
		}
	})
	defer late.Stop()
	err = s.within(func() error {
		text, err := c.CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}
