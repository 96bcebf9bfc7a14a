//go:build linux

package integration

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/bundle/unzip/ziptest"
)

// scanServer is a `skillbox scan serve` of a test's own.
type scanServer struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	temp string // --temp
	mu   sync.Mutex
	log  bytes.Buffer
	done chan error
}

// serveScans starts one and waits until it listens. It ends with the test, unless that ended it.
func (m mode) serveScans(t *testing.T, program string, flags ...string) *scanServer {
	t.Helper()
	return m.serveScansIn(t, program, m.dir(t), flags...)
}

func (m mode) serveScansIn(t *testing.T, program, temp string, flags ...string) *scanServer {
	t.Helper()
	s := &scanServer{t: t, temp: temp, done: make(chan error, 1)}
	s.cmd = m.command(append([]string{"scan", "serve", "--listen", "127.0.0.1:0", "--temp", temp}, flags...)...)
	s.cmd.Path = program
	out, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			s.mu.Lock()
			fmt.Fprintln(&s.log, lines.Text())
			s.mu.Unlock()
			if _, rest, ok := strings.Cut(lines.Text(), "address=tcp:"); ok {
				listening <- strings.Fields(rest)[0]
			}
		}
		close(listening)
		s.done <- s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.stop(unix.SIGTERM)
		if t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("the service's log:\n%s", s.log.String())
		}
	})
	select {
	case address, ok := <-listening:
		if !ok {
			t.Fatal("the service does not listen")
		}
		s.url = "http://" + address
	case <-time.After(patience(20 * time.Second)):
		t.Fatal("the service does not listen in time")
	}
	return s
}

// stop ends the service and returns how it ended; nil if it had ended.
func (s *scanServer) stop(sig unix.Signal) error {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	select {
	case err := <-s.done:
		return err
	case <-time.After(patience(30 * time.Second)):
		s.t.Error("the service does not end")
		_ = s.cmd.Process.Kill() // it did not listen to anything else
		return nil
	}
}

// empty checks that nothing is left in the service's directory.
func (s *scanServer) empty() {
	s.t.Helper()
	if left, err := os.ReadDir(s.temp); err != nil || len(left) > 0 {
		s.t.Errorf("left behind: %v, %v", left, err)
	}
}

// scanAnswer is the API's, with what these tests look at.
type scanAnswer struct {
	Status   int     `json:"-"`
	ID       string  `json:"scan_id"`
	Name     string  `json:"skill_name"`
	Safe     *bool   `json:"is_safe"`
	Worst    string  `json:"max_severity"`
	Count    int     `json:"findings_count"`
	Seconds  float64 `json:"scan_duration_seconds"`
	Detail   string  `json:"detail"`
	Findings []struct {
		Rule     string `json:"rule_id"`
		Analyzer string `json:"analyzer"`
	} `json:"findings"`
}

// upload sends a zip as a multipart client does.
func (s *scanServer) upload(ctx context.Context, data []byte) (a scanAnswer, err error) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "skill.zip")
	if err == nil {
		_, err = part.Write(data)
	}
	if err = errors.Join(err, w.WriteField("use_behavioral", "true"), w.Close()); err != nil {
		return a, err
	}
	return s.send(ctx, "/scan-upload", w.FormDataContentType(), &body)
}

func (s *scanServer) send(ctx context.Context, path, kind string, body io.Reader) (a scanAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, body)
	if err != nil {
		return a, err
	}
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%w: %s", err, text)
	}
	a.Status = resp.StatusCode
	return a, nil
}

// zipOf packs a directory of skills of this repository, as a folder.
func zipOf(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header, err := zip.FileInfoHeader(info)
		if err != nil {
			return err
		}
		header.Name, header.Method = filepath.Base(dir)+strings.TrimPrefix(path, dir), zip.Deflate
		into, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = into.Write(data)
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sleeper is a skill that lasts until it is ended, and can be told from others.
func sleeper(mark int) []byte {
	return ziptest.Make(ziptest.Entry{Name: "skillbox.yaml", Data: fmt.Appendf(nil, "version: 1\nname: sleeper\ncommand: [sleep, \"%d\"]\n", mark)})
}

// sleeps tells whether such a skill runs anywhere on this machine.
func sleeps(mark int) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, name := range names {
		words, _ := os.ReadFile(name) // none when it ended meanwhile
		if string(words) == "sleep\x00"+strconv.Itoa(mark)+"\x00" {
			return true
		}
	}
	return false
}

// begin sends a sleeper, and waits until it runs.
func (s *scanServer) begin(ctx context.Context, mark int) (end func() (scanAnswer, error)) {
	s.t.Helper()
	type both struct {
		a   scanAnswer
		err error
	}
	result := make(chan both, 1)
	go func() {
		a, err := s.upload(ctx, sleeper(mark))
		result <- both{a, err}
	}()
	if !soon(func() bool { return sleeps(mark) }) {
		s.t.Fatal("the skill does not start")
	}
	return func() (scanAnswer, error) { b := <-result; return b.a, b.err }
}

// refused checks that an answer is an error that calls nothing safe.
func (a scanAnswer) refused(t *testing.T, err error, status int, why string) {
	t.Helper()
	if err != nil || a.Status != status || !strings.Contains(a.Detail, why) || a.Safe != nil && *a.Safe {
		t.Errorf("answered %d %+v, %v, want %d with %q", a.Status, a, err, status, why)
	}
}
