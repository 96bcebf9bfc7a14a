package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"skillbox/audit"
)

// Analyzer is what findings of ours say they come from.
const Analyzer = "skillbox-runtime"

// health remembers for a while whether a sandbox could start: a service that says it is healthy must be able to scan.
type health struct {
	check    func(context.Context) error
	checking sync.Mutex // one at a time

	mu   sync.Mutex
	at   time.Time
	last error
}

const (
	healthAge  = 30 * time.Second
	healthTime = 10 * time.Second
)

func (h *health) now(ctx context.Context) error {
	h.checking.Lock()
	defer h.checking.Unlock()
	if err, known := h.known(); known {
		return err
	}
	// Not with the caller's patience, for the answer is everybody's.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTime)
	defer cancel()
	err := h.check(ctx)
	if err == nil && ctx.Err() != nil {
		err = errors.New("a sandbox did not start in time")
	}
	h.note(time.Now(), err)
	return err
}

func (h *health) known() (last error, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, !h.at.IsZero() && time.Since(h.at) < healthAge
}

// works notes that a scan went through, and so did its boxes.
func (h *health) works() { h.note(time.Now(), nil) }

// doubt has the next one who asks try again.
func (h *health) doubt() { h.note(time.Time{}, nil) }

func (h *health) note(at time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.last = at, err
}

func (s *Server) answerHealth(w http.ResponseWriter, r *http.Request) {
	body := map[string]any{"status": "healthy", "version": s.Version, "analyzers_available": []string{Analyzer}}
	status := http.StatusOK
	if err := s.mayReach(r); err != nil {
		s.refuse(w, r, err)
		return
	}
	if err := s.health.now(r.Context()); err != nil {
		s.Log.Error("no sandbox can start", "error", err)
		status, body["status"], body["detail"] = http.StatusServiceUnavailable, "unhealthy", audit.Clean(err.Error(), maxDetail)
	}
	s.write(w, r, status, body)
}
