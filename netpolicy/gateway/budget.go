package gateway

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// budget is what is left of one.
type budget struct {
	of    Budget
	bytes atomic.Int64

	mu          sync.Mutex
	connections int64
	tokens      float64
	at          time.Time
}

func (b *budget) start(of Budget) {
	b.of = of
	b.bytes.Store(of.Bytes)
	b.connections, b.tokens, b.at = of.Connections, float64(of.Rate), time.Now()
}

// connect takes one connection; the refusal names the field of the policy.
func (b *budget) connect() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(float64(b.of.Rate), b.tokens+now.Sub(b.at).Seconds()*float64(b.of.Rate))
	b.at = now
	switch {
	case b.bytes.Load() <= 0:
		return b.overBytes()
	case b.connections <= 0:
		return fmt.Errorf("network.limits.connections: %d", b.of.Connections)
	case b.tokens < 1:
		return fmt.Errorf("network.limits.rate: %d a second", b.of.Rate)
	}
	b.connections--
	b.tokens--
	return nil
}

func (b *budget) overBytes() error { return fmt.Errorf("network.limits.bytes: %d", b.of.Bytes) }
