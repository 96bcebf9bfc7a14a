package gateway

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"skillbox/netpolicy/hello"
)

// greetTime is how long a client may keep silent before it is taken for one that waits to be greeted.
const greetTime = 300 * time.Millisecond

// dialogue is a protocol in which the server speaks first, and which goes by lines.
type dialogue struct {
	greeting string
	answers  map[string]string // to what a line begins with, in capitals; "" to any other
	data     string            // the word after whose answer lines are data, up to a single dot
}

var (
	mail = &dialogue{
		"220 mail ESMTP\r\n",
		map[string]string{"EHLO": "250-mail\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME\r\n", "AUTH": "235 2.7.0 ok\r\n", "DATA": "354 go ahead\r\n", "QUIT": "221 bye\r\n", "": "250 ok\r\n"},
		"DATA",
	}
	files = &dialogue{"220 ready\r\n", map[string]string{"USER": "331 password\r\n", "PASS": "230 ok\r\n", "QUIT": "221 bye\r\n", "": "200 ok\r\n"}, ""}
	pop   = &dialogue{"+OK ready\r\n", map[string]string{"": "+OK\r\n"}, ""}
	shell = &dialogue{"SSH-2.0-OpenSSH_9.2\r\n", nil, ""}

	dialogues = map[uint16]*dialogue{21: files, 22: shell, 25: mail, 110: pop, 587: mail, 2222: shell, 2525: mail}
)

// converse hears a client out. An error is that it was ended by us.
func (c *sink) converse() error {
	r := bufio.NewReader(c)
	c.quiet = quietTime
	d := dialogues[c.event.To.Port()]
	if d != nil {
		c.quiet = greetTime
	}
	_, err := r.Peek(1)
	c.quiet = quietTime
	switch {
	case d != nil && errors.Is(err, os.ErrDeadlineExceeded):
		err = c.speak(d, r)
	case err == nil:
		err = c.listen(r, c)
	}
	var no *refusal
	if errors.As(err, &no) {
		return no
	}
	return nil // the client has no more to say, or says nothing, or nothing that is in order
}

// listen is for a client that speaks first. It is answered on w.
func (c *sink) listen(r *bufio.Reader, w io.Writer) error {
	kind := hello.Undecided
	for n := 1; kind == hello.Undecided; n++ {
		first, err := r.Peek(max(n, r.Buffered()))
		if err != nil {
			return err
		}
		kind = hello.Sniff(first)
	}
	switch port := c.event.To.Port(); {
	case kind == hello.KindTLS && !c.secure:
		c.secure = true
		return c.serveTLS(r)
	case kind == hello.KindHTTP:
		return serveHTTP(r, w)
	case (port == 53 || port == 853) && asksName(r):
		c.g.resolver.Serve(sinkConn{c, r, w})
		return nil
	}
	return drain(r)
}

// asksName says that what comes looks like a DNS query behind its length (RFC 1035 section 4.2.2): one question, nothing else.
func asksName(r *bufio.Reader) bool {
	head, err := r.Peek(14)
	return err == nil && head[0] < 8 && head[4]&0xf8 == 0 && head[6] == 0 && head[7] == 1 && head[8] == 0 && head[9] == 0
}

func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// maxHead is the most that a request's line and fields may have, in bytes, but for what was read ahead.
const maxHead = 64 << 10

// serveHTTP says yes and nothing to each request of a connection.
func serveHTTP(r *bufio.Reader, w io.Writer) error {
	// What a head may have is bounded here as in a server: it is held in memory, which is not the box's.
	head := &io.LimitedReader{R: r}
	b := bufio.NewReader(head)
	for {
		head.N = maxHead
		q, err := http.ReadRequest(b)
		head.N = math.MaxInt64
		if err != nil {
			return errors.Join(err, drain(r)) // it has ended, or looked like HTTP only
		}
		if strings.EqualFold(q.Header.Get("Expect"), "100-continue") {
			if _, err := io.WriteString(w, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return err
			}
		}
		if err := drain(q.Body); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return err
		}
		if q.Close {
			return nil
		}
	}
}

// speak greets, and answers each line.
func (c *sink) speak(d *dialogue, r *bufio.Reader) error {
	if _, err := io.WriteString(c, d.greeting); err != nil {
		return err
	}
	if d.answers == nil {
		return drain(r)
	}
	for data := false; ; {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // its end is answered
		}
		if err != nil {
			return err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if data && text != "." {
			continue
		}
		word, _, _ := strings.Cut(strings.ToUpper(text), " ")
		data = !data && d.data != "" && word == d.data
		answer, known := d.answers[word]
		if !known {
			answer = d.answers[""]
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return err
		}
		if word == "QUIT" {
			return nil
		}
	}
}
