package doctor

import (
	"fmt"
	"time"

	"skillbox/helper"
)

// Service is this user's own, see exec --mode user.
type Service struct {
	Forbidden bool // by SKILLBOX_NO_DAEMON=1
	Place     helper.ServicePlace
	OurBuild  string        // of the skillboxd that we would start
	Stats     *helper.Stats // nil if none answered
	AnswerMS  float64
	Error     string // why it could not be asked; "" where none runs
}

// service judges it. That none runs is nothing wrong: it is started when it is needed.
func service(f *Facts) []Finding {
	const name, need = "service", "exec --mode user: boxes that are ready when a call comes"
	s := f.Service
	if s == nil {
		return nil
	}
	p := s.Place
	where := fmt.Sprintf("%s (uid %d, mode %04o)", p.Dir, p.UID, p.Mode)
	switch {
	case s.Forbidden:
		return good(name, need, "SKILLBOX_NO_DAEMON=1 forbids one: every call starts a skillboxd of its own")
	case p.Exists && !p.Directory:
		return warn(name, need, "rm "+p.Dir, "%s is no directory, so that there can be no service", p.Dir)
	case p.Exists && (p.UID != f.UID || p.Mode&0o077 != 0):
		remedy := "chmod 0700 " + p.Dir
		if p.UID != f.UID {
			remedy = "sudo rm -r " + p.Dir
		}
		return warn(name, need, remedy, "%s is not yours alone, so that there can be no service", where)
	case s.Error != "":
		remedy := "skillbox logs -n 20"
		if p.PID > 0 {
			remedy += fmt.Sprintf("\nkill -KILL %d", p.PID)
		}
		return warn(name, need, remedy, "%s", s.Error)
	case s.Stats != nil:
		up := time.Since(s.Stats.Since).Round(time.Second)
		boxes := s.Stats.Boxes
		detail := fmt.Sprintf("answers in %.1f ms, up %s, boxes: %d running, %d ready; %s", s.AnswerMS, up, boxes.Running, boxes.Ready, where)
		if s.Stats.Build != s.OurBuild {
			detail += "; it is of another build than this skillbox: the next call replaces it"
		}
		return good(name, need, "%s", detail)
	case p.Socket:
		return good(name, need, "one has died and left its socket; the next call starts another, which removes it; %s", where)
	case !p.Possible:
		return warn(name, need, "set XDG_RUNTIME_DIR to a directory of your own, or log in by PAM with systemd", "there is no place for its socket: %s cannot be made", p.Dir)
	case !p.Exists:
		return good(name, need, "none runs; the first call makes %s and starts it", p.Dir)
	}
	return good(name, need, "none runs; the first call starts it in %s", where)
}
