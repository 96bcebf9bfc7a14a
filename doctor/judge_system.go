package doctor

import (
	"fmt"
	"path/filepath"

	"skillbox/helper"
)

// System is the service of the machine, see exec --mode system.
type System struct {
	Path       string // of its socket
	There      bool   // it has one, which may be nobody's
	Wrong      string // why no socket there may be believed
	Unit       string // of systemd's that would make it; "" where none is installed
	OurVersion string
	OurBuild   string        // of the skillboxd that we would start
	Stats      *helper.Stats // nil if it told none
	AnswerMS   float64
	Declined   *helper.Error // why it does not serve this user
	Dead       bool          // nobody listens
	Error      string        // why it could not be asked
}

// What helps with the service.
const (
	lookAtLog     = "sudo journalctl -u skillboxd -n 20"
	restartSystem = "sudo systemctl restart skillboxd.socket skillboxd.service"
)

// system judges the machine's service. That there is none is nothing wrong: calls have services of their users' own.
func system(f *Facts) []Finding {
	const name, need = "system service", "exec --mode system: ready boxes, control groups and links for every user"
	s := f.System
	if s == nil {
		return nil
	}
	if h := f.ServiceFile; h != nil && len(h.Errors) > 0 {
		return warn(name, need, "correct "+h.Path+", which keeps the service from starting and from serving users who come anew", "%s", lines(h.Errors))
	}
	switch {
	case s.Wrong != "":
		return warn(name, need, fmt.Sprintf("sudo rm %s; sudo chown root %[2]s; sudo chmod 0755 %[2]s; %s", s.Path, filepath.Dir(s.Path), restartSystem), "its socket cannot be believed: %s", s.Wrong)
	case !s.There && s.Unit != "":
		return warn(name, need, "sudo systemctl enable --now skillboxd.socket", "%s is installed, and %s is not there%s", s.Unit, s.Path, wouldServe(f))
	case !s.There:
		return good(name, need, "none: %s is not there, and calls have a service or a skillboxd of their user's%s", s.Path, wouldServe(f))
	case s.Dead:
		return warn(name, need, lookAtLog+"\n"+restartSystem, "nobody listens at %s%s", s.Path, wouldServe(f))
	case s.Declined != nil && f.UID == 0:
		return good(name, need, "listens at %s; it serves ordinary users, not root", s.Path)
	case s.Declined != nil && s.Declined.Field == "allow":
		return warn(name, need, "have root list you (allow) in "+s.Declined.File, "listens at %s and does not serve you: %s", s.Path, s.Declined.Error())
	case s.Declined != nil:
		return warn(name, need, s.Declined.Hint, "listens at %s and does not serve you: %s", s.Path, s.Declined.Error())
	case s.Error != "":
		return warn(name, need, lookAtLog+"\n"+restartSystem, "%s: %s", s.Path, s.Error)
	case s.Stats.Version != s.OurVersion:
		return warn(name, need, "install one version of both\n"+restartSystem, "is of version %s, and this skillbox of %s: it declines its calls; %s", s.Stats.Version, s.OurVersion, s.Path)
	case s.Stats.Build != s.OurBuild:
		return warn(name, need, "install one build of both\n"+restartSystem, "is of another build of version %s than this skillbox: it declines its calls; %s", s.Stats.Version, s.Path)
	}
	return good(name, need, "serves you: answers in %.1f ms, version %s, boxes of yours: %d running, %d ready; %s", s.AnswerMS, s.Stats.Version, s.Stats.Boxes.Running, s.Stats.Boxes.Ready, s.Path)
}

// wouldServe is what service.yaml says of this user, where no service can be asked.
func wouldServe(f *Facts) string {
	switch h := f.ServiceFile; {
	case h == nil || !h.Exists || f.UID == 0:
		return ""
	case f.KeptOut != nil:
		return "; it would not serve you: " + f.KeptOut.Error()
	default:
		return "; it would serve you by " + h.Path
	}
}
