package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/server/metrics"
	"skillbox/wire"
)

// boxes are those of now.
func (s *Service) boxes() helper.Boxes {
	ready, coming := s.pool.count()
	return helper.Boxes{Running: s.calls.count(), Ready: ready, Coming: coming}
}

// stats answers OpStats.
func (s *Service) stats() (json.RawMessage, error) {
	stats, err := s.record.Stats(s.boxes())
	if err != nil {
		return nil, err
	}
	stats.Build, stats.Metrics = s.Build, s.metricsAt
	return json.Marshal(stats)
}

// exposition answers OpMetrics.
func (s *Service) exposition() (json.RawMessage, error) {
	var text bytes.Buffer
	if err := s.writeMetrics(&text); err != nil {
		return nil, err
	}
	return json.Marshal(helper.Text{Text: text.String()})
}

func (s *Service) writeMetrics(w io.Writer) error { return s.record.Write(w, s.boxes()) }

// exposeMetrics serves them where whoever started the service wants them. The returned function ends that.
func (s *Service) exposeMetrics() (end func() error, err error) {
	nothing := func() error { return nil }
	if s.MetricsAt == "" {
		return nothing, nil
	}
	if s.MetricsAt != "unix" {
		l, err := net.Listen("tcp", s.MetricsAt)
		if err != nil {
			return nil, &helper.Error{
				Message: fmt.Sprintf("the metrics cannot be served where SKILLBOX_METRICS says: %v", err), Hint: "another service may be there: choose another port, or SKILLBOX_METRICS=unix",
			}
		}
		s.metricsAt = l.Addr().String()
		return metrics.Serve(l, s.writeMetrics, s.Log), nil
	}
	name := "metrics-" + s.Name
	file, err := wire.Listen(fmt.Sprintf("/proc/self/fd/%d/%s", s.Dir.Fd(), name))
	if err != nil {
		return nil, fmt.Errorf("server: socket for the metrics: %w", err)
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("server: socket for the metrics: %w", err)
	}
	dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.Dir.Fd()))
	if err != nil {
		return nil, fmt.Errorf("server: directory of the service: %w", err)
	}
	s.metricsAt = filepath.Join(dir, name)
	shut := metrics.Serve(&guarded{l, s.record}, s.writeMetrics, s.Log)
	return func() error {
		// First: the next service makes one of this name.
		if err := unix.Unlinkat(int(s.Dir.Fd()), name, 0); err != nil && err != unix.ENOENT {
			return fmt.Errorf("server: remove the socket for the metrics: %w", err)
		}
		return shut()
	}, nil
}

// guarded accepts whom the service itself would.
type guarded struct {
	net.Listener
	record *record
}

func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who, err := peerOf(conn)
		if err == nil {
			if reason := unwelcome(who); reason == "" {
				return conn, nil
			} else {
				g.record.refuse(reason, who, nil)
			}
		}
		_ = conn.Close() // nobody who is to be told
	}
}

// peerOf is who connected.
func peerOf(conn net.Conn) (who unix.Ucred, err error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return who, err
	}
	var cred *unix.Ucred
	errControl := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || errControl != nil {
		return who, fmt.Errorf("server: who connected: %w, %w", err, errControl)
	}
	return *cred, nil
}
