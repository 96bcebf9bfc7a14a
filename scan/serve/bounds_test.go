package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/scan"
	"skillbox/scan/serve"
)

// until waits for something that another goroutine does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestAScanThatFailsIsNeverSafe(t *testing.T) {
	clean := &scan.Report{}
	for name, c := range map[string]struct {
		report *scan.Report
		err    error
		status int
		why    string
	}{
		"no sandbox":        {nil, &helper.Error{Message: "newuidmap is missing", Hint: "install uidmap"}, 503, "newuidmap is missing; install uidmap"},
		"a report beside":   {clean, errors.New("half of it"), 500, "half of it"},
		"no report":         {nil, nil, 500, "no report"},
		"a run that failed": {&scan.Report{Runs: []scan.Run{{ID: "r", Verdict: helper.Failed}}}, nil, 500, "nothing is known"},
		"a run refused":     {&scan.Report{Runs: []scan.Run{{ID: "r", Verdict: helper.Refused}}}, nil, 500, "nothing is known"},
		"the skill's fault": {nil, fmt.Errorf("scan: %w", &bundle.Error{Path: "x", Message: "is a link", Hint: "remove it"}), 422, "is a link; remove it"},
		"a disk":            {nil, unix.ENOSPC, 500, "no space left"},
	} {
		s := start(t, serve.Config{Scan: func(context.Context, string, serve.Options) (*scan.Report, error) { return c.report, c.err }})
		t.Run(name, func(t *testing.T) { s.upload(skill("NONE")).isError(t, c.status, c.why) })
	}
	s := start(t, serve.Config{Scan: func(context.Context, string, serve.Options) (*scan.Report, error) { panic("oh") }})
	s.upload(skill("NONE")).isError(t, 500, "oh")
	if a := s.get("/health"); a.status != 200 {
		t.Errorf("after a panic: %d", a.status)
	}
}

func TestALateScanIsEnded(t *testing.T) {
	var ended atomic.Bool
	s := start(t, serve.Config{Deadline: 200 * time.Millisecond, Scan: func(ctx context.Context, _ string, _ serve.Options) (*scan.Report, error) {
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond) // as boxes take to end
		ended.Store(true)
		return &scan.Report{}, nil
	}})
	a := s.upload(skill("NONE"))
	if !ended.Load() {
		t.Error("it was answered before the scan had ended")
	}
	a.isError(t, 504, "in time")
	s.nothingLeft()
}

func TestOneWhoWaitsTooLongIsToldSo(t *testing.T) {
	begun := make(chan struct{}, 9)
	s := start(t, serve.Config{Parallel: 1, Deadline: 300 * time.Millisecond, Scan: func(ctx context.Context, _ string, _ serve.Options) (*scan.Report, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	first := s.form(skill("NONE"), "first")
	go func() { _, _ = do(first) }()
	<-begun
	s.upload(skill("NONE")).isError(t, 504, "in time")
}

func TestACallerWhoLeavesEndsTheScan(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "SKILL.md"), []byte("---\nname: x\ndescription: y\n---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	s := start(t, serve.Config{Roots: []string{root}, Scan: func(ctx context.Context, _ string, _ serve.Options) (*scan.Report, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}})
	for _, r := range []*http.Request{
		s.form(skill("NONE"), "skill.zip"),
		s.request("POST", "/scan", "application/json", strings.NewReader(fmt.Sprintf(`{"skill_directory":%q}`, root))),
	} {
		ctx, leave := context.WithCancel(context.Background())
		go func() { _, _ = do(r.WithContext(ctx)) }()
		<-begun
		leave()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the scan went on", r.URL.Path)
		}
	}
	until(t, "the end of the upload", func() bool { left, _ := os.ReadDir(s.temp); return len(left) == 0 })
}

func TestScansAreBoundedAndSoIsTheWait(t *testing.T) {
	const parallel, queue, callers = 3, 4, 12
	var running, most atomic.Int32
	hold := make(chan struct{})
	s := start(t, serve.Config{Parallel: parallel, Queue: queue, Scan: func(ctx context.Context, dir string, o serve.Options) (*scan.Report, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		<-hold
		return judge(ctx, dir, o)
	}})
	var done sync.WaitGroup
	var answered, later atomic.Int32
	for range callers {
		r := s.form(skill("NONE"), "skill.zip")
		done.Go(func() {
			a, err := do(r)
			switch {
			case err != nil:
				t.Error(err)
			case a.status == http.StatusOK:
				answered.Add(1)
			case a.status == http.StatusTooManyRequests:
				later.Add(1)
				a.isError(t, 429, "come again")
				if a.header.Get("Retry-After") == "" {
					t.Error("429 without Retry-After")
				}
			default:
				t.Errorf("%d %v", a.status, a.body)
			}
		})
	}
	until(t, "refusing", func() bool { return later.Load() == callers-parallel-queue })
	if a := s.get("/health"); a.status != 200 {
		t.Errorf("health of a busy service: %d", a.status)
	}
	close(hold)
	done.Wait()
	if answered.Load() != parallel+queue || most.Load() != parallel {
		t.Errorf("%d were scanned, %d at a time", answered.Load(), most.Load())
	}
}

func TestBodiesAreBounded(t *testing.T) {
	s := start(t, serve.Config{Upload: 100_000})
	s.upload(bytes.Repeat([]byte("x"), 200_000)).isError(t, 413, "100000 bytes")
	s.do(s.form(skill("NONE"), "x", "policy="+strings.Repeat("x", 200_000))).isError(t, 413, "100000 bytes")
	if _, err := exec.LookPath("curl"); err == nil { // which is still sending when it is told
		large := filepath.Join(t.TempDir(), "large")
		if err := os.WriteFile(large, make([]byte, 150_000), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("curl", "-sS", "-F", "file=@"+large, "-w", "%{http_code}", s.url+"/scan-upload").CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "413") {
			t.Errorf("%s, %v", out, err)
		}
	}
	many := make([]string, 200)
	for i := range many {
		many[i] = "a=b"
	}
	s.upload(skill("NONE"), many...).isError(t, 400, "more than 100 fields")
	s.post("/scan-upload", `{}`).isError(t, 415, "multipart/form-data")
	s.do(s.request("POST", "/scan-upload", "multipart/form-data; boundary=x", strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n"))).isError(t, 422, "no field file")
	s.do(s.request("POST", "/scan-upload", "multipart/form-data; boundary=x", strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf"))).isError(t, 400, "cannot be read")
	twice := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nb\r\n"
	s.do(s.request("POST", "/scan-upload", "multipart/form-data; boundary=x", strings.NewReader(twice+twice+"--x--\r\n"))).isError(t, 422, "two fields file")
	s.nothingLeft()
}

func TestABodyMustComeInTime(t *testing.T) {
	s := start(t, serve.Config{Receive: 300 * time.Millisecond})
	for header, status := range map[string]string{
		"POST /scan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{":                                                                               "08",
		"POST /scan HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n{":                                                                            "03",
		"POST /else HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{":                                                                               "04",
		"POST /scan-upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n--x\r\n\r\n": "08",
	} {
		c := s.dial()
		if _, err := io.WriteString(c, header); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c) // to the end of the connection
		if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 4"+status) {
			t.Errorf("%q, %v", text, err)
		}
	}
}

func TestAScanMayTakeLongerThanItsBody(t *testing.T) {
	s := start(t, serve.Config{Receive: 100 * time.Millisecond, Scan: func(ctx context.Context, dir string, o serve.Options) (*scan.Report, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
			return judge(ctx, dir, o)
		}
	}})
	if a := s.upload(skill("LOW")); a.status != 200 || a.body["max_severity"] != "LOW" {
		t.Errorf("%d %v", a.status, a.body)
	}
}

func TestHeadersAreBoundedAndMustComeSoon(t *testing.T) {
	s := start(t, serve.Config{})
	large := s.dial()
	if _, err := fmt.Fprintf(large, "GET /health HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10)); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(large), nil); err != nil || r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header: %v, %v", r, err)
	}
	if testing.Short() {
		t.Skip("the rest waits for a time-out")
	}
	slow := s.dial()
	if _, err := io.WriteString(slow, "GET /health HTTP/1.1\r\nHost: localhost\r\nX"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := slow.SetReadDeadline(began.Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, slow); err != nil || time.Since(began) > 15*time.Second {
		t.Errorf("a header that does not end keeps the connection %s, %v", time.Since(began), err)
	}
}

func TestStoppingDoesNotWaitForBodies(t *testing.T) {
	s := start(t, serve.Config{})
	c := s.dial()
	if _, err := io.WriteString(c, "POST /scan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" { // it waits for the body
		t.Fatalf("%q, %v", line, err)
	}
	began := time.Now()
	s.stop()
	if err := c.SetReadDeadline(began.Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answers)
	if err != nil || !strings.Contains(string(text), "HTTP/1.1 503 ") || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %q, %v", time.Since(began), text, err)
	}
}

func TestStoppingEndsScansAndLeavesNothing(t *testing.T) {
	begun := make(chan struct{})
	s := start(t, serve.Config{Scan: func(ctx context.Context, _ string, _ serve.Options) (*scan.Report, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	r := s.form(skill("NONE"), "skill.zip")
	answer := make(chan answered, 1)
	go func() {
		a, err := do(r)
		if err != nil {
			t.Error(err)
		}
		answer <- a
	}()
	<-begun
	s.stop()
	a := <-answer
	a.isError(t, 503, "being stopped")
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("it still listens: %v", err)
	}
}
