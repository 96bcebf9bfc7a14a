package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"skillbox/helper"
)

// answerTime is how soon a service in good health answers.
const answerTime = time.Second

// lookAtService asks this user's service, if one runs, how it does. None is started.
func (f *Facts) lookAtService(ctx context.Context) {
	s := &Service{Forbidden: os.Getenv("SKILLBOX_NO_DAEMON") == "1"}
	f.Service = s
	place, err := helper.LookAtService()
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Place = *place
	if program, err := helper.Find("skillboxd"); err == nil {
		s.OurBuild, _ = helper.Build(program) // that there is no skillboxd is another finding
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	began := time.Now()
	document, err := helper.AskService(ctx, "user", helper.OpStats, nil)
	s.AnswerMS = float64(time.Since(began).Microseconds()) / 1000
	if err == nil {
		s.Stats = &helper.Stats{}
		err = json.Unmarshal(document, s.Stats)
	}
	switch {
	case err == nil || errors.Is(err, helper.ErrNoService):
	case errors.Is(err, context.DeadlineExceeded):
		s.Error = "it does not answer within " + answerTime.String()
	default:
		s.Stats, s.Error = nil, "it cannot be asked: "+err.Error()
	}
}
