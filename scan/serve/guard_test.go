package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/scan/serve"
)

func TestWhoHasNoTokenIsRefused(t *testing.T) {
	s := start(t, serve.Config{Token: "a-token-of-some-length"})
	s.upload(skill("NONE")).isError(t, 401, "Authorization: Bearer")
	for header, status := range map[string]int{"Bearer a-token-of-some-length": 200, "bearer a-token-of-some-length": 200, "Bearer a-token-of-some-lengt": 401, "Bearer": 401, "Basic a-token-of-some-length": 401, "Bearer ": 401} {
		r := s.form(skill("NONE"), "x.zip")
		r.Header.Set("Authorization", header)
		if a := s.do(r); a.status != status {
			t.Errorf("%q: %d %v", header, a.status, a.body)
		}
	}
	if a := s.get("/health"); a.status != 200 {
		t.Errorf("health needs a token: %d", a.status)
	}
}

func TestPagesInABrowserAreRefused(t *testing.T) {
	s := start(t, serve.Config{})
	for name, change := range map[string]func(*http.Request){
		"another site":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin":    func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"a name that turns": func(r *http.Request) { r.Host = "evil.example" },
		"an address":        func(r *http.Request) { r.Host = "192.0.2.7:8000" },
	} {
		r := s.form(skill("NONE"), "x.zip")
		change(r)
		t.Run(name, func(t *testing.T) { s.do(r).isError(t, 403, "") })
	}
	for _, host := range []string{"localhost:8000", "LOCALHOST", "127.0.0.9", "[::1]:80"} {
		r := s.form(skill("NONE"), "x.zip")
		r.Host = host
		if a := s.do(r); a.status != 200 {
			t.Errorf("%s: %d %v", host, a.status, a.body)
		}
	}
	any := start(t, serve.Config{AnyHost: true})
	r := any.form(skill("NONE"), "x.zip")
	r.Host = "scanner.example"
	if a := any.do(r); a.status != 200 {
		t.Errorf("%d %v", a.status, a.body)
	}
}

func TestOtherPathsAndMethodsAreErrorsInJSON(t *testing.T) {
	s := start(t, serve.Config{})
	s.get("/").isError(t, 404, "/scan-upload")
	s.get("/scan-batch").isError(t, 404, "no such path")
	s.post("/health", "{}").isError(t, 405, "GET")
	a := s.get("/scan-upload")
	a.isError(t, 405, "POST")
	if a.header.Get("Allow") != "POST" {
		t.Errorf("Allow: %q", a.header.Get("Allow"))
	}
}

func TestOtherMachinesAreNotListenedTo(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.7:0", "example.org:0"} {
		l, err := serve.Listen(address, false)
		if !errors.Is(err, serve.ErrExposed) {
			t.Errorf("%s: %v", address, err)
		}
		if l != nil {
			l.Close()
		}
	}
	for _, address := range []string{"nonsense", "unix:", "unix:@skillbox", "unix:socket", "127.0.0.1"} {
		if l, err := serve.Listen(address, true); err == nil {
			t.Errorf("%s is listened at", address)
			l.Close()
		}
	}
	l, err := serve.Listen("0.0.0.0:0", true)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestASocketIsForItsUserAndGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := serve.Listen("unix:"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := serve.Listen("unix:"+path, false); err == nil || !strings.Contains(err.Error(), "another service") {
		t.Errorf("a second one: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as if it had been killed
	l.Close()
	again, err := serve.Listen("unix:"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	s, err := serve.New(serve.Config{Scan: judge, Check: func(context.Context) error { return nil }, Temp: t.TempDir(), AnyHost: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, again) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	r, err := client.Get("http://scanner/health")
	if err != nil || r.StatusCode != 200 {
		t.Errorf("%v, %v", r, err)
	} else {
		r.Body.Close()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serve.Listen("unix:"+file, false); err == nil {
		t.Error("a file was replaced")
	}
}

// TestTempChild is the service that is killed in the next test.
func TestTempChild(t *testing.T) {
	parent := os.Getenv("SERVE_TEST_TEMP")
	if parent == "" {
		t.Skip("it is another test's child")
	}
	temp, err := serve.OpenTemp(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(temp.Path, "upload"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

func TestWhatAKilledServiceLeftIsSwept(t *testing.T) {
	parent := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestTempChild$")
	child.Env = append(os.Environ(), "SERVE_TEST_TEMP="+parent)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 6)
	for !bytes.Equal(ready, []byte("ready\n")) {
		if _, err := out.Read(ready); err != nil {
			t.Fatal(err)
		}
	}
	beside, err := serve.OpenTemp(parent) // while the other lives
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := os.ReadDir(parent); len(all) != 2 {
		t.Errorf("a living service's directory was swept: %v", all)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	mine := filepath.Join(parent, "skillbox-serve-file")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := serve.OpenTemp(parent)
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := os.ReadDir(parent); len(all) != 3 {
		t.Errorf("after a kill there are %v", all)
	}
	if err := errors.Join(beside.Close(), next.Close(), os.Remove(mine)); err != nil {
		t.Fatal(err)
	}
	if all, _ := os.ReadDir(parent); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}
