package doctor

import (
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

func TestTheSystemServiceIsJudged(t *testing.T) {
	const path, file = "/run/skillboxd/skillboxd.sock", "/etc/skillbox/service.yaml"
	listed := &helper.Error{Message: "does not serve you", File: file, Field: "allow"}
	runs := func(version, build string) *helper.Stats {
		return &helper.Stats{Version: version, Build: build, Since: time.Now(), Boxes: helper.Boxes{Running: 2, Ready: 3}}
	}
	for name, c := range map[string]struct {
		system  System
		change  func(*Facts)
		status  string
		says    []string
		remedy  string
		another bool // remedy is only how it begins
	}{
		"none":           {System{Path: path}, nil, OK, []string{"none: " + path + " is not there"}, "", false},
		"none, but file": {System{Path: path}, func(f *Facts) { f.KeptOut = listed }, OK, []string{"it would not serve you", file + ": allow: does not serve you"}, "", false},
		"not started":    {System{Path: path, Unit: "/usr/lib/systemd/system/skillboxd.socket"}, nil, Warn, []string{"is installed", "it would serve you by " + file}, "sudo systemctl enable --now skillboxd.socket", false},
		"dead":           {System{Path: path, There: true, Dead: true}, nil, Warn, []string{"nobody listens"}, lookAtLog, true},
		"another's":      {System{Path: path, Wrong: "not root's"}, nil, Warn, []string{"cannot be believed: not root's"}, "sudo rm " + path + "; sudo chown root /run/skillboxd;", true},
		"silent":         {System{Path: path, There: true, Error: "it does not answer within 5s"}, nil, Warn, []string{"does not answer"}, lookAtLog, true},
		"serves":         {System{Path: path, There: true, OurVersion: "v1", OurBuild: "b", AnswerMS: 1.25, Stats: runs("v1", "b")}, nil, OK, []string{"serves you: answers in 1.2 ms, version v1", "2 running, 3 ready"}, "", false},
		"older":          {System{Path: path, There: true, OurVersion: "v2", OurBuild: "b", Stats: runs("v1", "b")}, nil, Warn, []string{"is of version v1, and this skillbox of v2"}, "install one version of both", true},
		"another build":  {System{Path: path, There: true, OurVersion: "v1", OurBuild: "c", Stats: runs("v1", "b")}, nil, Warn, []string{"is of another build"}, "install one build of both", true},
		"not listed":     {System{Path: path, There: true, Declined: listed}, nil, Warn, []string{"does not serve you", "allow"}, "have root list you (allow) in " + file, false},
		"elsewhere":      {System{Path: path, There: true, Declined: &helper.Error{Message: "another namespace", Hint: "use --mode user"}}, nil, Warn, []string{"another namespace"}, "use --mode user", false},
		"root":           {System{Path: path, There: true, Declined: &helper.Error{Message: "m"}}, func(f *Facts) { f.UID = 0 }, OK, []string{"not root"}, "", false},
		"wrong file": {System{Path: path, There: true, Error: "e"}, func(f *Facts) {
			f.ServiceFile.Errors = []*helper.Error{{Message: "unknown key", File: file, Line: 3, Column: 1}}
		}, Warn, []string{file + ":3:1: unknown key"}, "correct " + file, true},
	} {
		f := desktop()
		f.ServiceFile = &helper.HostFile{Path: file, Exists: true}
		f.System = &c.system
		if c.change != nil {
			c.change(f)
		}
		got := system(f)
		if len(got) != 1 || got[0].Status != c.status || got[0].Name != "system service" || got[0].Need == "" || got[0].Remedy != c.remedy && !(c.another && strings.HasPrefix(got[0].Remedy, c.remedy)) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(got[0].Detail, word) {
				t.Errorf("%s does not say %q: %s", name, word, got[0].Detail)
			}
		}
	}
	if got := system(desktop()); got != nil {
		t.Errorf("not looked at: %+v", got)
	}
}
