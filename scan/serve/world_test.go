package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/bundle/unzip/ziptest"
	"skillbox/scan"
	"skillbox/scan/serve"
)

// service is one that runs for a test, on loopback.
type service struct {
	t    *testing.T
	url  string
	temp string
	stop context.CancelFunc
	done chan error
}

// start runs a service with a scanner of the test's. At its end nothing of any request may be left.
func start(t *testing.T, c serve.Config) *service {
	t.Helper()
	c.Temp = t.TempDir()
	if c.Check == nil {
		c.Check = func(context.Context) error { return nil }
	}
	if c.Scan == nil {
		c.Scan = judge
	}
	c.Log = slog.New(slog.NewTextHandler(testLog{t}, nil))
	s, err := serve.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := serve.Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &service{t: t, url: "http://" + l.Addr().String(), temp: c.Temp, stop: cancel, done: make(chan error, 1)}
	go func() { one.done <- errors.Join(s.Run(ctx, l), s.Close()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-one.done; err != nil {
			t.Errorf("the service: %v", err)
		}
		one.nothingLeft()
	})
	return one
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (s *service) nothingLeft() {
	s.t.Helper()
	left, err := os.ReadDir(s.temp)
	if err != nil || len(left) > 0 {
		s.t.Errorf("left behind: %v, %v", left, err)
	}
}

// judge is a scanner that finds what the skill's file `verdict` says.
func judge(_ context.Context, dir string, o serve.Options) (*scan.Report, error) {
	text, err := os.ReadFile(filepath.Join(dir, "verdict"))
	if err != nil {
		return nil, err
	}
	severity, err := scan.ParseSeverity(strings.TrimSpace(string(text)))
	r := &scan.Report{Skill: audit.Skill{Name: o.Name + "+" + severity.String()}}
	if severity > scan.None {
		r.Findings = []scan.Finding{{Rule: "SKILLBOX_EGRESS_UNDECLARED", Severity: severity, Category: "network", Title: "t " + severity.String(), Description: "d", Remediation: "r", Run: "id", Count: 2}}
	}
	return r, err
}

// skill is a zip of a skill with a verdict.
func skill(severity string) []byte {
	return ziptest.Make(
		ziptest.Entry{Name: "SKILL.md", Data: []byte("---\nname: fine\ndescription: Is fine.\n---\n")},
		ziptest.Entry{Name: "verdict", Data: []byte(severity)},
	)
}

// answered is what came back, as any JSON client sees it.
type answered struct {
	status int
	header http.Header
	body   map[string]any
}

func (s *service) do(r *http.Request) answered {
	s.t.Helper()
	a, err := do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func do(r *http.Request) (a answered, err error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.status, a.header = resp.StatusCode, resp.Header
	return a, json.Unmarshal(text, &a.body)
}

func (s *service) request(method, path, kind string, body io.Reader) *http.Request {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

func (s *service) get(path string) answered {
	s.t.Helper()
	return s.do(s.request(http.MethodGet, path, "", nil))
}

func (s *service) post(path, body string) answered {
	s.t.Helper()
	return s.do(s.request(http.MethodPost, path, "application/json", strings.NewReader(body)))
}

// form is an upload as a multipart client sends it, with fields beside the file.
func (s *service) form(data []byte, name string, fields ...string) *http.Request {
	s.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		if err := w.WriteField(key, value); err != nil {
			s.t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		s.t.Fatal(err)
	}
	return s.request(http.MethodPost, "/scan-upload", w.FormDataContentType(), &body)
}

func (s *service) upload(data []byte, fields ...string) answered {
	s.t.Helper()
	return s.do(s.form(data, "skill.zip", fields...))
}

// isError checks what each error must be: JSON that says why, and never that something is safe.
func (a answered) isError(t *testing.T, status int, why string) {
	t.Helper()
	detail, ok := a.body["detail"].(string)
	if a.status != status || !ok || !strings.Contains(detail, why) {
		t.Errorf("answered %d %v, want %d with %q", a.status, a.body, status, why)
	}
	if safe, there := a.body["is_safe"]; there && safe != false {
		t.Errorf("an error says is_safe: %v", safe)
	}
	if kind := a.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("an error is %s", kind)
	}
}

// dial opens a connection for what no HTTP client sends.
func (s *service) dial() net.Conn {
	s.t.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}
