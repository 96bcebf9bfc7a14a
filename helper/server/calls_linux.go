package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skillbox/helper"
	"skillbox/sandbox"
)

// calls are those that a service runs.
type calls struct {
	mu      sync.Mutex
	running map[string]*running // by the box's id
}

type running struct {
	helper.Running
	box  *sandbox.Box // nil in a session, whose it is
	d    *decision
	kill func()
}

// begin lists a call until end.
func (c *calls) begin(id string, box *sandbox.Box, d *decision, kill func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string]*running{}
	}
	c.running[id] = &running{helper.Running{ID: id, Skill: d.bundle.Name, Policy: d.policy.Name, Command: d.argv, Since: time.Now().UTC()}, box, d, kill}
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

// status lists them, the oldest first.
func (c *calls) status() []helper.Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []helper.Running{}
	for _, r := range c.running {
		all = append(all, r.Running)
	}
	slices.SortFunc(all, func(a, b helper.Running) int { return a.Since.Compare(b.Since) })
	return all
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
