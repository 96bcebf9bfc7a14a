package metrics

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// scrapeTime is what a scraper has to ask and to read the answer, and scrapers how many are answered at a time.
	scrapeTime = 10 * time.Second
	scrapers   = 8
	maxHeader  = 8 << 10
)

// Serve answers GET /metrics on a listener, which is Serve's from now on, until the returned function is called.
func Serve(l net.Listener, write func(io.Writer) error, log *slog.Logger) (end func() error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			http.Error(w, "the service's log says why there are none", http.StatusInternalServerError)
			log.Error("metrics", "error", err)
			return
		}
		w.Header().Set("Content-Type", ContentType)
		_, _ = w.Write(text.Bytes()) // a scraper that went away needs none
	})
	s := &http.Server{
		Handler: mux, ReadTimeout: scrapeTime, WriteTimeout: scrapeTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what a scraper does wrong is its own matter
	}
	s.SetKeepAlivesEnabled(false)
	done := make(chan error, 1)
	go func() { done <- s.Serve(&limited{Listener: l, slots: make(chan struct{}, scrapers)}) }()
	return func() error {
		err := s.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
}

// limited accepts no more connections than it has slots.
type limited struct {
	net.Listener
	slots chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
