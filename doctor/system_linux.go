package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"skillbox/helper"
)

// systemTime is how soon the system service answers: it may have to start this user's worker first.
const systemTime = 5 * time.Second

// units are where the socket's unit lies if systemd can start the service.
var units = []string{"/etc/systemd/system/skillboxd.socket", "/usr/lib/systemd/system/skillboxd.socket", "/lib/systemd/system/skillboxd.socket"}

// lookAtSystem asks the system service, if one runs, what it would tell this user. version is the client's own.
func (f *Facts) lookAtSystem(ctx context.Context, version string) {
	s := &System{OurVersion: version}
	f.System = s
	var err error
	s.Path, s.There, err = helper.LookAtSystem()
	if err != nil {
		s.Wrong = err.Error()
	}
	for _, unit := range units {
		_, err := os.Stat(unit)
		if err == nil && s.Path == filepath.Join(helper.SystemDir, helper.SystemSocket) { // and not another's, by SKILLBOX_SOCKET
			s.Unit = unit
			break
		}
	}
	if !s.There {
		return
	}
	if program, err := helper.Find("skillboxd"); err == nil {
		s.OurBuild, _ = helper.Build(program) // that there is no skillboxd is another finding
	}
	ctx, cancel := context.WithTimeout(ctx, systemTime)
	defer cancel()
	began := time.Now()
	document, err := helper.AskService(ctx, "system", helper.OpStats, nil)
	s.AnswerMS = float64(time.Since(began).Microseconds()) / 1000
	var declined *helper.Declined
	switch {
	case err == nil:
		s.Stats = &helper.Stats{}
		if err = json.Unmarshal(document, s.Stats); err != nil {
			s.Stats, s.Error = nil, err.Error()
		}
	case errors.As(err, &declined):
		s.Declined = declined.Why
	case errors.Is(err, helper.ErrNoService):
		s.Dead = true
	case errors.Is(err, context.DeadlineExceeded):
		s.Error = "it does not answer within " + systemTime.String()
	default:
		s.Error = err.Error()
	}
}
