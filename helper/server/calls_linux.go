package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skillbox/helper"
)

// calls are those that a service runs, and what those came to that it ran.
type calls struct {
	mu       sync.Mutex
	running  map[string]*running // by the box's id
	verdicts map[string]int64
	ready    int64 // that found a box ready
}

type running struct {
	helper.Running
	kill func()
}

// begin lists a call until end.
func (c *calls) begin(id string, d *decision, found bool, kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]*running{}
	}
	c.running[id] = &running{helper.Running{ID: id, Skill: d.bundle.Name, Policy: d.policy.Name, Command: d.argv, Since: time.Now().UTC()}, kill}
	if found {
		c.ready++
	}
}

func (c *calls) end(id, verdict string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
	if c.verdicts == nil {
		c.verdicts = map[string]int64{}
	}
	c.verdicts[verdict]++
}

// status is what `skillbox ps` shows.
func (c *calls) status(p *pool, since time.Time) (json.RawMessage, error) {
	c.mu.Lock()
	s := helper.Status{Since: since.UTC(), Running: []helper.Running{}, Verdicts: map[string]int64{}, FoundReady: c.ready}
	for _, r := range c.running {
		s.Running = append(s.Running, r.Running)
	}
	for verdict, n := range c.verdicts {
		s.Verdicts[verdict] = n
	}
	c.mu.Unlock()
	slices.SortFunc(s.Running, func(a, b helper.Running) int { return a.Since.Compare(b.Since) })
	s.Ready = p.status()
	return json.Marshal(s)
}

// kill ends the calls with these ids at once. What is not known is refused before anything is.
func (c *calls) kill(ids []string) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.running[id] == nil {
			return nil, &helper.Error{Message: fmt.Sprintf("no call %s runs", id), Hint: "`skillbox ps` lists those that do"}
		}
	}
	for _, id := range ids {
		c.running[id].kill()
	}
	return json.Marshal(helper.Text{Text: strings.Join(ids, "\n") + "\n"})
}
