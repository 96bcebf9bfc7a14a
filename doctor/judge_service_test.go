package doctor

import (
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

func TestTheServiceIsJudged(t *testing.T) {
	own := helper.ServicePlace{Dir: "/run/user/1000/skillbox", Possible: true, Exists: true, Directory: true, UID: 1000, Mode: 0o700}
	place := func(change func(*helper.ServicePlace)) helper.ServicePlace {
		p := own
		change(&p)
		return p
	}
	runs := &helper.Stats{Build: "b1", Since: time.Now().Add(-time.Minute), Boxes: helper.Boxes{Running: 2, Ready: 3}}
	for name, c := range map[string]struct {
		service Service
		status  string
		says    []string
		remedy  string
	}{
		"none, no directory": {Service{Place: helper.ServicePlace{Dir: own.Dir, Possible: true}}, OK, []string{"none runs", own.Dir}, ""},
		"none":               {Service{Place: own}, OK, []string{"none runs", own.Dir}, ""},
		"forbidden":          {Service{Forbidden: true, Place: own, Stats: runs}, OK, []string{"SKILLBOX_NO_DAEMON=1"}, ""},
		"runs":               {Service{Place: own, OurBuild: "b1", Stats: runs, AnswerMS: 1.25}, OK, []string{"answers in 1.2 ms", "up 1m0s", "2 running, 3 ready", "(uid 1000, mode 0700)"}, ""},
		"another build":      {Service{Place: own, OurBuild: "b2", Stats: runs}, OK, []string{"another build"}, ""},
		"dead":               {Service{Place: place(func(p *helper.ServicePlace) { p.Socket = true })}, OK, []string{"has died", "which removes it"}, ""},
		"silent":             {Service{Place: place(func(p *helper.ServicePlace) { p.Socket, p.PID = true, 42 }), Error: "it does not answer"}, Warn, []string{"does not answer"}, "skillbox logs -n 20\nkill -KILL 42"},
		"silent and hidden":  {Service{Place: own, Error: "it does not answer"}, Warn, nil, "skillbox logs -n 20"},
		"open to others":     {Service{Place: place(func(p *helper.ServicePlace) { p.Mode = 0o755 })}, Warn, []string{"not yours alone", "mode 0755"}, "chmod 0700 " + own.Dir},
		"another's":          {Service{Place: place(func(p *helper.ServicePlace) { p.UID = 0 })}, Warn, []string{"not yours alone", "uid 0"}, "sudo rm -r " + own.Dir},
		"a link":             {Service{Place: place(func(p *helper.ServicePlace) { p.Directory = false })}, Warn, []string{"no directory"}, "rm " + own.Dir},
		"no place":           {Service{Place: helper.ServicePlace{Dir: own.Dir}}, Warn, []string{"cannot be made"}, "set XDG_RUNTIME_DIR to a directory of your own, or log in by PAM with systemd"},
	} {
		f := desktop()
		f.Service = &c.service
		got := service(f)
		if len(got) != 1 || got[0].Status != c.status || got[0].Remedy != c.remedy || got[0].Name != "service" || got[0].Need == "" {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(got[0].Detail, word) {
				t.Errorf("%s does not say %q: %s", name, word, got[0].Detail)
			}
		}
	}
	if got := service(desktop()); got != nil {
		t.Errorf("not looked at: %+v", got)
	}
}
