package scan

import (
	"context"
	"errors"
	"time"

	"skillbox/client"
)

// watchPause is how often the decoy home is looked at while a skill runs.
const watchPause = 200 * time.Millisecond

// watched runs the skill, and ends it when it fills the disk that its home is on.
func (s *scanning) watched(ctx context.Context, w *world, params []byte, outputs string) (run *Run, result *client.Result, full bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, looked := make(chan struct{}), make(chan bool)
	go func() {
		for {
			select {
			case <-ended:
				looked <- false
				return
			case <-time.After(watchPause):
			}
			if _, err := look(w.home); errors.Is(err, errHomeFull) {
				cancel()
				looked <- true
				return
			}
		}
	}()
	run, result, err = s.place.Run(ctx, Call{Bundle: s.dir, Policy: w.policyText(s.declared), Params: params, Env: s.env, Output: outputs})
	close(ended)
	full = <-looked
	return run, result, full, err
}
