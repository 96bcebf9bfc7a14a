//go:build linux

package integration

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a headless Chromium with a profile of its own, driven over two pipes by the DevTools protocol: no port is open.
type browser struct {
	cmd     *exec.Cmd
	to      *os.File
	mu      sync.Mutex
	next    int
	waiting map[int]chan answer
	events  []event
	news    chan struct{} // one element: there is a new event
	ended   chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

type event struct {
	Method, SessionID string
	Params            json.RawMessage
}

const chromium = "/usr/bin/chromium"

// startBrowser ends it with the test, and looks that nothing of it is left.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	_, err := os.Stat(chromium)
	needs(t, "chromium", err)
	dir, err := os.MkdirTemp("", "skillbox-browser-")
	if err != nil {
		t.Fatal(err)
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-first-run", "--disable-gpu", "--disable-extensions", "--disable-sync",
		"--disable-background-networking", "--disable-component-update", "--disable-breakpad", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--password-store=basic", "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank",
	}
	if os.Getuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...) // it refuses to make a sandbox for root
	}
	b := &browser{cmd: exec.Command(chromium, args...), to: ourOut, waiting: map[int]chan answer{}, news: make(chan struct{}, 1), ended: make(chan struct{})}
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	b.cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "XDG_RUNTIME_DIR=" + dir, "LANG=C.UTF-8"}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	go b.read(ourIn)
	t.Cleanup(func() { b.close(t, dir) })
	return b
}

func (b *browser) read(from *os.File) {
	defer close(b.ended)
	defer from.Close()
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		message, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID int
			answer
			event
		}
		if json.Unmarshal(message[:len(message)-1], &m) != nil {
			return
		}
		b.mu.Lock()
		if m.ID != 0 {
			b.waiting[m.ID] <- m.answer
			delete(b.waiting, m.ID)
		} else {
			b.events = append(b.events, m.event)
		}
		b.mu.Unlock()
		select {
		case b.news <- struct{}{}:
		default:
		}
	}
}

func (b *browser) close(t *testing.T, dir string) {
	b.to.Close() // it ends when nobody drives it
	ended := make(chan error, 1)
	go func() { ended <- b.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience(5 * time.Second)):
		t.Error("the browser does not end by itself")
	}
	if err := syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		t.Error(err)
	}
	patiently(t, patience(5*time.Second), "processes of the browser are left", func() bool { return !mentioned(dir) })
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// mentioned tells whether a process has this on its command line.
func mentioned(word string) bool {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, l := range lines {
		if text, err := os.ReadFile(l); err == nil && strings.Contains(string(text), word) {
			return true
		}
	}
	return false
}

func patiently(t *testing.T, limit time.Duration, or string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(or)
		}
	}
}

// call is one method of the protocol.
func (b *browser) call(t *testing.T, session, method string, params map[string]any, result any) {
	t.Helper()
	came := make(chan answer, 1)
	b.mu.Lock()
	b.next++
	id := b.next
	b.waiting[id] = came
	b.mu.Unlock()
	message, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": session})
	if session == "" {
		message, err = json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.to.Write(append(message, 0)); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-came:
		if a.Error != nil {
			t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(a.Result, result); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
	case <-b.ended:
		t.Fatalf("%s: the browser has ended", method)
	case <-time.After(patience(20 * time.Second)):
		t.Fatalf("%s: no answer", method)
	}
}
