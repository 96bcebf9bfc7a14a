//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skillbox/doctor"
	"skillbox/integration/space"
)

func TestDoctorLooksAtTheSystemService(t *testing.T) {
	s := theSystem(t)
	if _, err := os.Stat("/etc/skillbox"); err != nil {
		if err := os.Mkdir("/etc/skillbox", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/etc/skillbox") })
	}
	host, err := space.New(unix.CLONE_NEWNS, func() error {
		return errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("none", "/etc/skillbox", "tmpfs", 0, "mode=755"))
	})
	needs(t, "a world of namespaces", err)
	s.within = host.Run
	s.flags = []string{"--dir", s.dir} // and the file that doctor's skillboxd reads
	says := func(text string) {
		t.Helper()
		if err := host.Run(func() error { return os.WriteFile("/etc/skillbox/service.yaml", []byte(text), 0o644) }); err != nil {
			t.Fatal(err)
		}
	}
	bin := binDir
	check := func(what string, uid int, status string, want ...string) {
		t.Helper()
		var f doctor.Finding
		if err := host.Run(func() error {
			c := s.as(uid).command("doctor", "--json")
			c.Path = filepath.Join(bin, "skillbox")
			r, _ := examine(t, c)
			f = finding(t, r, "system service")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, word := range want {
			if f.Status != status || !strings.Contains(f.Detail+" "+f.Remedy, word) {
				t.Errorf("%s: %+v; want %s, %q", what, f, status, word)
			}
		}
	}
	says(fmt.Sprintf("version: 1\nallow: {users: [\"%d\"]}\n", bob))
	check("no socket", bob, doctor.OK, s.socket()+" is not there", "would serve you")
	check("no socket for one who is not listed", carol, doctor.OK, "it would not serve you: /etc/skillbox/service.yaml: allow")
	s.begin(t)
	check("runs", bob, doctor.OK, "serves you: answers in ", "version ", s.socket())
	check("not listed", carol, doctor.Warn, "does not serve you", "have root list you (allow) in /etc/skillbox/service.yaml")
	check("root", 0, doctor.OK, "not root")
	// Programs of another build, whose calls it declines.
	bin = asRoot.ownPrograms(t)
	check("another build", bob, doctor.Warn, "another build", "systemctl restart")
	bin = binDir
	says("version: 1\nquota: {users: {alcie: {calls: 1}}}\n")
	check("a wrong file", bob, doctor.Warn, "/etc/skillbox/service.yaml:2:17: quota.users: /etc/passwd knows no user alcie", "correct ")
	says("version: 1\n")
	if err := s.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	check("stopped", carol, doctor.Warn, "does not answer within 5s", "journalctl -u skillboxd")
	if err := errors.Join(s.cmd.Process.Signal(unix.SIGCONT), s.cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
	check("died", bob, doctor.Warn, "nobody listens at "+s.socket(), "journalctl -u skillboxd")
	if err := errors.Join(os.Remove(s.socket()), os.WriteFile(s.socket(), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	check("a file", bob, doctor.Warn, "cannot be believed", "sudo rm "+filepath.Clean(s.socket()))
	if err := os.Remove(s.socket()); err != nil {
		t.Fatal(err)
	}
	s.begin(t) // which sweeps the groups that the killed one has left
}
