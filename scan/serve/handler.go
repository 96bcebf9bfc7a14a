package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"skillbox/audit"
)

// failure is an answer that is not a scan's. Whoever knows the status makes one; any other error is answered with 500.
type failure struct {
	status int
	detail string
	err    error
}

func (f *failure) Error() string { return f.detail }
func (f *failure) Unwrap() error { return f.err }

func fail(status int, format string, a ...any) *failure {
	err := fmt.Errorf(format, a...)
	return &failure{status: status, detail: err.Error(), err: errors.Unwrap(err)}
}

// retryAfter is what a caller who finds the line full is told to wait, in seconds: about what a scan takes.
const retryAfter = 15

// Handler is the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.answerHealth)
	mux.Handle("POST /scan", s.guarded(s.scanDirectory))
	mux.Handle("POST /scan-upload", s.guarded(s.scanUpload))
	for path, method := range map[string]string{"/health": http.MethodGet, "/scan": http.MethodPost, "/scan-upload": http.MethodPost} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			s.refuse(w, r, fail(http.StatusMethodNotAllowed, "%s takes %s", path, method))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, fail(http.StatusNotFound, "there is no such path: use /health, /scan or /scan-upload"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server reads what a handler left of a body, and by itself would wait for it without end.
		c := http.NewResponseController(w)
		if err := c.SetReadDeadline(time.Now().Add(s.Receive)); err != nil {
			s.refuse(w, r, fmt.Errorf("serve: %w", err))
			return
		}
		// A service that is stopped does not wait for the rest either.
		defer context.AfterFunc(r.Context(), func() { _ = c.SetReadDeadline(time.Now()) })() // the connection may be gone
		mux.ServeHTTP(w, r)
	})
}

// guarded lets a request through to a scan: one that may ask, while there is a place in the line.
func (s *Server) guarded(scan func(ctx context.Context, w http.ResponseWriter, r *http.Request) (*Answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), s.Deadline, errLate)
		defer cancel()
		began := time.Now()
		if err := s.mayAsk(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		leave, ok := s.line.enter()
		if !ok {
			s.swallow(w, r.Body)
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
			s.refuse(w, r, fail(http.StatusTooManyRequests, "%d scans run and %d requests wait: come again later", s.Parallel, s.Queue))
			return
		}
		defer leave()
		answer, err := scan(ctx, w, r)
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx) // a scan that was ended knows only a part
		}
		if err != nil {
			s.refuse(w, r, ended(ctx, err))
			return
		}
		answer.finish(began)
		s.Log.Info("scanned", "path", r.URL.Path, "scan", answer.ScanID, "skill", answer.SkillName, "safe", answer.IsSafe, "worst", answer.Worst, "seconds", answer.Seconds)
		s.write(w, r, http.StatusOK, answer)
	})
}

// ended says why a request whose context ended has no answer, whatever the error that this led to.
func ended(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errLate):
		return fail(http.StatusGatewayTimeout, "the scan did not end in time, and was ended: %w", cause)
	case errors.Is(cause, errStopping):
		return fail(http.StatusServiceUnavailable, "the service is being stopped: %w", cause)
	case ctx.Err() != nil && !errors.As(err, new(*failure)): // a body that did not come ends the context too
		return fail(statusGone, "the caller has gone: %w", cause)
	}
	return err
}

// statusGone is what nginx logs for a caller who did not wait. It is sent nevertheless: no answer at all would become 200.
const statusGone = 499

// swallow reads what a caller sends whom nobody wants, as far as that is bearable: one who is cut off while sending does not hear why.
func (s *Server) swallow(w http.ResponseWriter, body io.Reader) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTime)) // of a connection that has none, there is nothing to wait for
	_, _ = io.Copy(io.Discard, io.LimitReader(body, s.Upload))
}

// refuse answers with an error. Its body never says is_safe: true, whatever a caller looks for in it.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{status: http.StatusInternalServerError, detail: err.Error()}
	}
	level := slog.LevelInfo
	if f.status >= 500 {
		level = slog.LevelError
	}
	detail := audit.Clean(f.detail, maxDetail)
	s.Log.Log(r.Context(), level, "refused", "path", audit.Clean(r.URL.Path, 100), "status", f.status, "detail", detail)
	s.write(w, r, f.status, map[string]any{"detail": detail, "is_safe": false})
}

// maxDetail bounds what an error may say, in bytes: it may quote a stranger's words.
const maxDetail = 2000

func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"detail":"the answer could not be written as JSON","is_safe":false}`)
		s.Log.Error("answer", "error", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil {
		s.Log.Info("the caller did not take the answer", "path", r.URL.Path, "error", err)
	}
}

// options are the names of what a caller asked for beyond what there is, for the answer to name.
func options(names []string) []string {
	const most = 32
	slices.Sort(names)
	all := []string{}
	for _, name := range slices.Compact(names) {
		if name != "use_behavioral" && len(all) < most { // that is what we do
			all = append(all, audit.Clean(name, 64))
		}
	}
	return all
}
