package server

import (
	"time"

	"skillbox/helper"
	"skillbox/sandbox"
)

// followTime is how often a client that asked for it hears what was refused.
const followTime = 250 * time.Millisecond

// follow tells the client what its skill is refused while it runs, if it asked for that. stop returns when nothing is being told any more.
func (c *connection) follow(box *sandbox.Box) (stop func()) {
	if !c.request.Follow {
		return func() {}
	}
	refused := box.Refused()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(followTime)
		defer tick.Stop()
		told := map[helper.Denial]int64{}
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if fresh := since(told, refused()); len(fresh) > 0 && c.conn.Send(helper.Reply{Denied: fresh}) != nil {
				return // the client has gone, which ends the call
			}
		}
	}()
	return func() { close(over); <-done }
}

// since are the refusals that were not told yet, with how often each came since.
func since(told map[helper.Denial]int64, all []helper.Denial) (fresh []helper.Denial) {
	for _, d := range all {
		count := d.Count
		d.Count = 0
		if more := count - told[d]; more > 0 {
			told[d] = count
			d.Count = more
			fresh = append(fresh, d)
		}
	}
	return fresh
}
