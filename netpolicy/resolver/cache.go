package resolver

import (
	"net/netip"
	"sync"
	"time"
)

// result is what is known of a question. Its addresses are pinned at least until it expires.
type result struct {
	rcode   int
	addrs   []netip.Addr
	expires time.Time // zero for a failure, which is not kept
	err     string
}

// maxCache bounds the memory of a box with a very long policy.
const maxCache = 4096

// cache keeps results until they expire.
type cache struct {
	mu sync.Mutex
	m  map[key]result
}

func (c *cache) get(k key, now time.Time) (result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.m[k]
	return r, ok && now.Before(r.expires)
}

// put keeps a result. A full cache loses what has expired, and if that is nothing, everything: it only costs asking again.
func (c *cache) put(k key, r result, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) >= maxCache {
		for old, r := range c.m {
			if !now.Before(r.expires) {
				delete(c.m, old)
			}
		}
		if len(c.m) >= maxCache {
			clear(c.m)
		}
	}
	if c.m == nil {
		c.m = map[key]result{}
	}
	c.m[k] = r
}

// flights lets equal questions wait for one answer.
type flights struct {
	mu sync.Mutex
	m  map[key]*flight
}

type flight struct {
	done   chan struct{}
	result result
}

// do asks, or waits for who asks already. ask must end by itself.
func (f *flights) do(k key, ask func() result) result {
	f.mu.Lock()
	if running := f.m[k]; running != nil {
		f.mu.Unlock()
		<-running.done
		return running.result
	}
	mine := &flight{done: make(chan struct{})}
	if f.m == nil {
		f.m = map[key]*flight{}
	}
	f.m[k] = mine
	f.mu.Unlock()
	mine.result = ask()
	f.mu.Lock()
	delete(f.m, k)
	f.mu.Unlock()
	close(mine.done)
	return mine.result
}
