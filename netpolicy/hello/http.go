package hello

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Requests are the HTTP/1 requests of one connection, all for one name.
type Requests struct {
	r         *bufio.Reader
	port      uint16
	normalize func(string) (string, error)
	first     *head

	once     sync.Once
	answered chan struct{}
	switched bool // to WebSocket; written before answered is closed
}

// HTTP reads the head of the first request: exactly one Host, a name with no port or the one that was dialled, and an absolute target
// only where it says the same (RFC 9112 section 3.2). WriteTo passes the requests on.
func HTTP(r *bufio.Reader, port uint16, normalize func(string) (string, error)) (*Requests, error) {
	h, err := readHead(r, port, normalize)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the client sent no HTTP request: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return &Requests{r: r, port: port, normalize: normalize, first: h, answered: make(chan struct{})}, nil
}

// Name is the server that the first request is for, in normal form.
func (q *Requests) Name() string { return q.first.name }

// WriteTo passes the requests on, byte for byte, each after its head was checked, until the client has no more (nil) or one is refused.
// One for another name is an *OtherHost. When the first asks for WebSocket, then what follows waits for Answer, and is passed on
// unread if the server agreed. No other switch is followed: what comes after it is no HTTP/1 and ends the connection, HTTP/2 (h2c) by
// its preface.
func (q *Requests) WriteTo(w io.Writer) (int64, error) {
	to := &counter{w: w}
	for h := q.first; ; {
		if err := h.pass(to, q.r); err != nil {
			return to.n, err
		}
		if h == q.first && h.websocket && q.awaitSwitch() {
			_, err := io.Copy(to, q.r)
			return to.n, err
		}
		next, err := readHead(q.r, q.port, q.normalize)
		if err == io.EOF { // between two requests; within one it is another error
			return to.n, nil
		}
		if err != nil {
			return to.n, err
		}
		if next.name != q.first.name {
			return to.n, &OtherHost{Name: next.name, Checked: q.first.name}
		}
		h = next
	}
}

// awaitSwitch waits until the client sends more, if it does, and then for the server's answer.
func (q *Requests) awaitSwitch() bool {
	if _, err := q.r.Peek(1); err != nil {
		return false // the next read says the same
	}
	<-q.answered
	return q.switched
}

// Answer must be called once, before anything else is read from the server. Where the client asked for WebSocket it reads the head of
// the answer, to know whether the server agreed; the caller passes on what it returns, also with an error, and then the rest of r. In
// any other case it reads nothing.
func (q *Requests) Answer(r *bufio.Reader) (raw []byte, err error) {
	defer q.Close()
	if !q.first.websocket {
		return nil, nil
	}
	for {
		start := len(raw)
		if raw, err = appendAnswer(r, raw); err != nil {
			return raw, fmt.Errorf("the server sent no whole HTTP answer: %w", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw[start:])), nil)
		switch {
		case err != nil:
			return raw, nil // no agreement, whatever it is
		case answer.StatusCode == http.StatusSwitchingProtocols:
			q.finish(strings.EqualFold(answer.Header.Get("Upgrade"), "websocket"))
			return raw, nil
		case answer.StatusCode >= 200:
			return raw, nil
		} // 100, 102 and 103 come before the answer
	}
}

// appendAnswer reads up to and with an empty line.
func appendAnswer(r *bufio.Reader, raw []byte) ([]byte, error) {
	for line := 0; ; {
		part, err := r.ReadSlice('\n')
		raw = append(raw, part...)
		line += len(part)
		switch {
		case len(raw) > MaxHead:
			return raw, fmt.Errorf("it is longer than %d bytes", MaxHead)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return raw, io.ErrUnexpectedEOF
		case err != nil:
			return raw, err
		case line <= 2 && strings.Trim(string(part), "\r\n") == "":
			return raw, nil
		}
		line = 0
	}
}

// Close ends the wait for the server's answer, as after one that does not agree. It never fails.
func (q *Requests) Close() error {
	q.finish(false)
	return nil
}

func (q *Requests) finish(switched bool) {
	q.once.Do(func() {
		q.switched = switched
		close(q.answered)
	})
}

// counter counts what is written, and lets io.Copy use the ReadFrom of what it writes to: splice(2), on Linux.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.w, r)
	c.n += n
	return n, err
}
