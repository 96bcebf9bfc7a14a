package metrics

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestScrapersThatSayNothingHoldNobodyUpForLong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := Serve(l, func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }, slog.New(slog.DiscardHandler))
	var silent []net.Conn
	for range scrapers {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	answered := make(chan error, 1)
	go func() {
		r, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err == nil {
			text, errRead := io.ReadAll(r.Body)
			err = errors.Join(errRead, r.Body.Close())
			if string(text) != "text" || r.Header.Get("Content-Type") != ContentType {
				err = errors.New(string(text))
			}
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("more are answered than there are slots: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	silent[0].Close()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody answers after a slot is free")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", l.Addr().String()); err == nil {
		conn.Close()
		t.Error("the listener is still open")
	}
}

func TestWhatGoesWrongIsNoAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := Serve(l, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return errors.New("no more")
	}, slog.New(slog.DiscardHandler))
	r, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if r.StatusCode != 500 || string(text) == "half" {
		t.Errorf("%d, %q", r.StatusCode, text)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
