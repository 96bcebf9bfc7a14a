package resolver

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// bucket lets rate events per second through, and burst at once.
type bucket struct {
	rate, burst int
	mu          sync.Mutex
	tokens      float64
	last        time.Time
}

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.tokens = float64(b.burst)
	} else if d := now.Sub(b.last); d > 0 {
		b.tokens = min(float64(b.burst), b.tokens+d.Seconds()*float64(b.rate))
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// floods counts refusals between those that are told, one a second.
type floods struct {
	mu     sync.Mutex
	last   time.Time
	untold int
}

func (f *floods) add(now time.Time) (untold int, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.last.IsZero() && now.Sub(f.last) < time.Second {
		f.untold++
		return 0, false
	}
	untold, f.untold, f.last = f.untold, 0, now
	return untold, true
}

// Below a wildcard a skill chooses the labels, and whoever answers for the zone reads them: what they can carry is bounded.
const (
	maxBelow       = 100 // bytes in front of the wildcard's own name
	maxBelowLabels = 5
)

// names counts the different names that were asked for below each wildcard.
type names struct {
	most int
	mu   sync.Mutex
	seen map[string]map[string]bool
}

// admit says why a name may not be asked for below its wildcard, "" if it may. "" as wildcard admits: the policy spells the name out.
func (n *names) admit(name, wildcard string) string {
	if wildcard == "" {
		return ""
	}
	below := strings.TrimSuffix(name, strings.TrimPrefix(wildcard, "*"))
	if len(below) > maxBelow || strings.Count(below, ".") >= maxBelowLabels {
		return fmt.Sprintf("more than %d bytes or %d labels in place of the * of %s", maxBelow, maxBelowLabels, wildcard)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen[wildcard]
	if seen[name] {
		return ""
	}
	if len(seen) >= n.most {
		return fmt.Sprintf("more than %d names for %s", n.most, wildcard)
	}
	if seen == nil {
		if n.seen == nil {
			n.seen = map[string]map[string]bool{}
		}
		seen = map[string]bool{}
		n.seen[wildcard] = seen
	}
	seen[name] = true
	return ""
}
