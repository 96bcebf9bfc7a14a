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

// calls are those that a service runs.
type calls struct {
	mu      sync.Mutex
	running map[string]*running // by the box's id
}

type running struct {
	helper.Running
	kill func()
}

// begin lists a call until end.
func (c *calls) begin(id string, d *decision, kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]*running{}
	}
	c.running[id] = &running{helper.Running{ID: id, Skill: d.bundle.Name, Policy: d.policy.Name, Command: d.argv, Since: time.Now().UTC()}, kill}
}

func (c *calls) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.running)
}

// status is what `skillbox ps` shows.
func (c *calls) status(p *pool, held *sessions, r *record, since time.Time) (json.RawMessage, error) {
	c.mu.Lock()
	s := helper.Status{Since: since.UTC(), Running: []helper.Running{}, Verdicts: r.Verdicts(), FoundReady: r.Found()}
	for _, r := range c.running {
		s.Running = append(s.Running, r.Running)
	}
	c.mu.Unlock()
	slices.SortFunc(s.Running, func(a, b helper.Running) int { return a.Since.Compare(b.Since) })
	s.Ready, s.Sessions = p.status(), held.status()
	return json.Marshal(s)
}

// kill ends the calls with these ids at once. What is not known is refused before anything is.
func (c *calls) kill(ids []string) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.running[id] == nil {
			return nil, &helper.Error{Message: fmt.Sprintf("no call or session %s runs", id), Hint: "`skillbox ps` lists those that do"}
		}
	}
	for _, id := range ids {
		c.running[id].kill()
	}
	return json.Marshal(helper.Text{Text: strings.Join(ids, "\n") + "\n"})
}
