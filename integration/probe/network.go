package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

var _ = register(map[string]func([]string) (any, error){"talk": talks, "reach": reaches})

// talk is one connection that a skill tries: the test says what to send, and judges what came back.
type talk struct {
	Look    []string `json:"look"`    // names that are looked up before
	To      string   `json:"to"`      // "tcp 20.1.1.10:443"
	Wait    int      `json:"wait"`    // ms of silence before the first byte
	Send    [][]byte `json:"send"`    // each in a write of its own
	Pause   int      `json:"pause"`   // ms between the writes
	After   []byte   `json:"after"`   // sent once something came back
	Hold    int      `json:"hold"`    // ms without an answer after which it ends; 0 is 2000
	Count   int      `json:"count"`   // bytes after which it ends; 0 is no end
	Nothing bool     `json:"nothing"` // end when connected
}

// outcome is what a talk came to. Times are in ms: until the connection was there or refused, and from then until its end.
type outcome struct {
	Looked  map[string]string `json:"looked"` // the names' addresses, or the error
	Connect string            `json:"connect"`
	ConnMS  float64           `json:"conn_ms"`
	Got     []byte            `json:"got"` // the first 8 KiB
	Bytes   int               `json:"bytes"`
	End     string            `json:"end"` // "EOF", "timeout", "enough", or an errno's name
	EndMS   float64           `json:"end_ms"`
}

// talks has the conversations of its stdin, one after the other, or with an argument all at once.
func talks(args []string) (any, error) {
	var all []talk
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		return nil, err
	}
	outcomes := make([]outcome, len(all))
	var wg sync.WaitGroup
	for i, t := range all {
		if len(args) == 0 {
			outcomes[i] = t.have()
			continue
		}
		wg.Go(func() { outcomes[i] = t.have() })
	}
	wg.Wait()
	return outcomes, nil
}

// reaches tries to connect to each of its arguments ("tcp 20.1.1.10:443"), and to have a datagram answered ("udp 20.1.1.10:7").
func reaches(targets []string) (any, error) {
	outcomes := map[string]outcome{}
	for _, to := range targets {
		t := talk{To: to, Nothing: true}
		if strings.HasPrefix(to, "udp") {
			t = talk{To: to, Hold: 300, Send: [][]byte{[]byte("hello")}, Count: 5}
		}
		outcomes[to] = t.have()
	}
	return outcomes, nil
}

func (t talk) have() (o outcome) {
	o.Looked = map[string]string{}
	for _, name := range t.Look {
		o.Looked[name], _ = look(name)
	}
	network, addr, _ := strings.Cut(t.To, " ")
	began := time.Now()
	c, err := net.DialTimeout(network, addr, 5*time.Second)
	o.Connect, o.ConnMS = outcomeOf(err), since(began)
	if err != nil {
		return o
	}
	defer c.Close()
	if t.Nothing {
		return o
	}
	began = time.Now()
	defer func() { o.EndMS = since(began) }()
	time.Sleep(time.Duration(t.Wait) * time.Millisecond)
	if strings.HasPrefix(network, "udp") { // a refusal is told by the call that sends, and again by the next one
		if err := t.send(c); err != nil {
			o.End = outcomeOf(err)
			return o
		}
		t.Send = nil
	}
	sent := make(chan error, 1)
	go func() { sent <- t.send(c) }()
	o.read(c, &t)
	// The kernel tells of a reset once, to whoever asks first: what reads as an end may be one that the sender is about to report.
	select {
	case err := <-sent:
		if err != nil && o.Bytes == 0 && o.End != "ECONNRESET" {
			o.End = outcomeOf(err)
		}
	case <-time.After(100 * time.Millisecond):
	}
	return o
}

func (t *talk) send(c net.Conn) error {
	for i, part := range t.Send {
		if i > 0 {
			time.Sleep(time.Duration(t.Pause) * time.Millisecond)
		}
		if _, err := c.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// read reads until the other side ends, or says nothing for as long as the test waits.
func (o *outcome) read(c net.Conn, t *talk) {
	hold := 2 * time.Second
	if t.Hold > 0 {
		hold = time.Duration(t.Hold) * time.Millisecond
	}
	buffer := make([]byte, 64<<10)
	for {
		_ = c.SetReadDeadline(time.Now().Add(hold + time.Duration(t.Pause*len(t.Send))*time.Millisecond))
		n, err := c.Read(buffer)
		if o.Bytes == 0 && n > 0 && len(t.After) > 0 {
			_, _ = c.Write(t.After)
		}
		o.Bytes += n
		o.Got = append(o.Got, buffer[:min(n, 8<<10-len(o.Got))]...)
		if err != nil {
			o.End = outcomeOf(err)
			return
		}
		if t.Count > 0 && o.Bytes >= t.Count {
			o.End = "enough"
			return
		}
	}
}

// look asks Go's resolver.
func look(name string) (addrs string, ms float64) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second)
	defer cancel()
	began := time.Now()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	ms = since(began)
	if err != nil {
		return outcomeOf(err), ms
	}
	all := make([]string, len(found))
	for i, a := range found {
		all[i] = a.Unmap().String()
	}
	slices.Sort(all)
	return strings.Join(all, " "), ms
}

// outcomeOf is answer, with the ends that have no errno.
func outcomeOf(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, io.EOF):
		return "EOF"
	case errors.As(err, new(syscall.Errno)):
		return answer(err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

func since(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }
