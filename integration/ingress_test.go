//go:build linux

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/helper"
)

// web is a policy under which a skill may be reached.
const web = "version: 1\ntimeout: 5m\nnetwork: {ingress: [{port: 8080, name: web}, {port: 9090}]}\n"

// reachable is a skill whose ports are published.
type reachable struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	at             map[string]string // by what was asked for
}

// serve starts a skill, and waits until its ports are published.
func (m mode) serve(t *testing.T, policy, bundle string, publish []string, words ...string) *reachable {
	t.Helper()
	return m.serveBy(t, m.command, "exec", policy, bundle, publish, words...)
}

func (m mode) serveBy(t *testing.T, command func(...string) *exec.Cmd, verb, policy, bundle string, publish []string, words ...string) *reachable {
	t.Helper()
	told := filepath.Join(m.dir(t), "published")
	args := append(strings.Fields(verb), "--json", "--policy", m.file(t, "policy.yaml", policy), "--publish-file", told)
	for _, p := range publish {
		args = append(args, "--publish", p)
	}
	if args = append(args, bundle); len(words) > 0 {
		args = append(append(args, "--"), words...)
	}
	s := &reachable{cmd: command(args...), at: map[string]string{}}
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	if !soon(func() bool { text, err := os.ReadFile(told); return err == nil && s.learn(text) == nil }) {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		t.Fatalf("nothing is published: %s%s", s.stdout.String(), s.stderr.String())
	}
	return s
}

func (s *reachable) learn(text []byte) error {
	var all []map[string]string
	err := json.Unmarshal(text, &all)
	for _, one := range all {
		s.at[one["port"]] = one["address"]
	}
	return err
}

// end waits for the envelope.
func (s *reachable) end(t *testing.T) *helper.Result {
	t.Helper()
	late := time.AfterFunc(patience(time.Minute), func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	_ = s.cmd.Wait() // its code is in the envelope
	var r helper.Result
	if err := json.Unmarshal(s.stdout.Bytes(), &r); err != nil {
		t.Fatalf("no envelope: %v\nstdout: %s\nstderr: %s", err, s.stdout.String(), s.stderr.String())
	}
	return &r
}

// dial connects with a published port.
func dial(at string) (net.Conn, error) {
	network := "tcp"
	if strings.Contains(at, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, at, patience(10*time.Second))
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience(30 * time.Second)))
	}
	return c, err
}

// post asks the example server.
func post(at, path, body string) (string, error) {
	client := &http.Client{Timeout: patience(30 * time.Second), Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(at) },
	}}
	answer, err := client.Post("http://skill"+path, "text/plain", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func TestASkillsOwnServerIsReachedByItsCaller(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.example(t, "local-server")
		socket := filepath.Join(m.dir(t), "web.sock")
		s := m.serve(t, web, bundle, []string{"web=" + socket})
		info, err := os.Stat(socket)
		if err != nil || info.Mode().Perm() != 0o600 || int(info.Sys().(*syscall.Stat_t).Uid) != m.uid() {
			t.Errorf("the socket: %+v, %v", info, err)
		}
		// Only its user's processes get through, also where somebody has opened the way to it.
		if err := os.Chmod(socket, 0o777); err != nil {
			t.Fatal(err)
		}
		if m.uid() != os.Getuid() {
			if got, err := post(socket, "/", "x"); err == nil {
				t.Errorf("another user got %q", got)
			}
		}
		m.postAs(t, socket, "/", "a b a", `{"words": 3}`)
		m.postAs(t, socket, "/quit", "", `{"words": 0}`)
		r := s.end(t)
		if !r.Success || string(r.Result) != `{"requests":2}` || len(r.Published) != 1 || r.Published[0] != (helper.Published{Port: 8080, Name: "web", Address: socket}) {
			t.Errorf("%s: %s, %+v, %v", r.Verdict, r.Result, r.Published, r.Error)
		}
		in := 0
		for _, f := range r.Network {
			if f.Direction == "in" && f.Port == 8080 && f.Address == "127.0.0.1" && strings.HasSuffix(f.Rule, "policy.yaml:3") && f.Sent > 0 && f.Received > 0 && f.Error == "" {
				in++
			}
		}
		if n := r.Usage.Net; in != 2 || n == nil || n.Connections != 2 || n.Sent == 0 || n.Received == 0 {
			t.Errorf("%+v, %+v", r.Network, n)
		}
		logged := details[audit.Connection](recorded(t, m, r.ID))
		if len(logged) < 2 || logged[0].Direction != "in" && logged[1].Direction != "in" {
			t.Errorf("the log has %+v", logged)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
}

// postAs asks as the mode's user.
func (m mode) postAs(t *testing.T, socket, path, body, want string) {
	t.Helper()
	args := []string{"--silent", "--show-error", "--max-time", "30", "--data", body}
	if strings.Contains(socket, "/") {
		args = append(args, "--unix-socket", socket, "http://skill"+path)
	} else {
		args = append(args, "http://"+socket+path)
	}
	c := exec.Command("curl", args...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	out, err := c.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("%s%s: %q, %v; want %q", socket, path, got, err, want)
	}
}

// By whatever way a box reaches others, it is reached at loopback, and nothing of it listens where nobody has asked.
func TestAPortIsPublishedAtLoopback(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		m := y.mode
		bundle := m.example(t, "local-server")
		policy := y.policy("egress: [{cidrs: [" + apiAddr + "/32], ports: [80]}]\ningress: [{port: 8080}]\n")
		_ = w.host.Run(func() error {
			s := m.serve(t, policy, bundle, []string{"8080=127.0.0.1:0"})
			at := s.at["8080"]
			m.postAs(t, at, "/", "a b", `{"words": 2}`)
			for _, other := range []string{"127.0.0.1:8080", "[::1]:8080", join(hostAddr, 8080)} {
				if err := exec.Command("curl", "--silent", "--max-time", "2", "http://"+other+"/").Run(); err == nil {
					t.Errorf("something listens at %s", other)
				}
			}
			m.postAs(t, at, "/quit", "", `{"words": 0}`)
			if r := s.end(t); !r.Success {
				t.Errorf("%s: %v %s", r.Verdict, r.Error, r.Stderr)
			}
			if err := exec.Command("curl", "--silent", "--max-time", "2", "http://"+at+"/").Run(); err == nil {
				t.Errorf("something listens at %s after the end", at)
			}
			return nil
		})
	})
}

func TestPortsThatNobodyMayPublish(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"main.sh": greeting})
		dir := m.dir(t)
		at := func(name string) string { return filepath.Join(dir, name) }
		m.write(t, at("file"), "", 0o644)
		try := func(what, want, text string, publish ...string) {
			t.Helper()
			c := call{mode: m, policy: text, bundle: bundle, words: []string{"./main.sh"}}
			for _, p := range publish {
				c.flags = append(c.flags, "--publish", p)
			}
			refusedFor(t, what, c, want)
		}
		try("no policy", "grants no ingress", "", "8080="+at("a"))
		try("another port", `no ingress to port "7070"`, web, "7070="+at("a"))
		try("another name", `no ingress to port "ssh"`, web, "ssh="+at("a"))
		try("twice", "published twice", web, "web="+at("a"), "8080="+at("b"))
		for _, wide := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "[::ffff:127.0.0.1]:0"} {
			try(wide, "loopback only", web, "web="+wide)
		}
		try("neither", "neither an address nor a path", web, "web=8080")
		try("no filters for sockets", "strict has no network sockets", web+"syscalls: {profile: strict}\n")
		if r := (call{mode: m, policy: web, bundle: bundle, flags: []string{"--publish", "web=" + at("file")}, words: []string{"./main.sh"}}).run(t); r.Success || !strings.Contains(r.Error.Message, "something else at the path") {
			t.Errorf("a file: %+v", r.Error)
		}
		if m != asRoot {
			r := call{mode: m, policy: web, bundle: bundle, flags: []string{"--publish", "web=/usr/web.sock"}, words: []string{"./main.sh"}}.run(t)
			if r.Success || !strings.Contains(r.Error.Message, "permission denied") {
				t.Errorf("a directory that is not the caller's: %+v", r.Error)
			}
		}
		if _, err := os.Lstat(at("a")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a refused call leaves its socket: %v", err)
		}
		hostSays(t, "network: {ingress: [{port: 9090}]}\n")
		try("the host's ceiling", "8080 is not permitted on this host", web, "web="+at("a"))
	})
}

// A socket's file goes with the run, however that ends.
func TestPublishedSocketsAreNotLeft(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.example(t, "local-server")
		socket := filepath.Join(m.dir(t), "web.sock")
		gone := func(what string) {
			t.Helper()
			if !soon(func() bool { _, err := os.Lstat(socket); return errors.Is(err, os.ErrNotExist) }) {
				t.Errorf("%s: the socket is left", what)
			}
		}
		s := m.serve(t, web, bundle, []string{"web=" + socket})
		m.postAs(t, socket, "/", "a", `{"words": 1}`)
		if r := (call{mode: m, policy: web, bundle: bundle, flags: []string{"--publish", "web=" + socket}}).run(t); r.Success || !strings.Contains(r.Error.Message, "somebody listens") {
			t.Errorf("a path that is taken: %+v", r.Error)
		}
		m.postAs(t, socket, "/", "a", `{"words": 1}`) // it still is
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = os.Remove(socket) // a helper for one call dies with its client, and the file stays until the next start, as below

		dead, err := net.Listen("unix", socket) // as one that was killed together with its helper leaves it
		if err != nil {
			t.Fatal(err)
		}
		dead.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		m.own(t, socket)
		s = m.serve(t, web, bundle, []string{"web=" + socket})
		m.postAs(t, socket, "/quit", "a", `{"words": 1}`)
		if r := s.end(t); !r.Success {
			t.Errorf("%v", r.Error)
		}
		gone("a run that ended")
		if r := (call{mode: m, policy: web + "filesystem: {read: [{host: /none}]}\n", bundle: bundle, flags: []string{"--publish", "web=" + socket}}).run(t); r.Success {
			t.Error("it ran")
		}
		gone("a call that was refused")
	})
}

// rude is a server that does whatever a caller would rather not have.
const rude = `#!/usr/bin/python3
import os, socket, struct, sys, threading
what = sys.argv[1]
s = socket.create_server(("127.0.0.1", 8080), backlog=500)
kept = []
def serve(c):
    if what == "reset":
        c.recv(1)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
    elif what == "deaf":
        kept.append(c)
    elif what == "flood":
        try:
            while True: c.sendall(b"x" * 65536)
        except OSError:
            pass
    elif what == "half":
        data = b""
        while True:
            more = c.recv(4096)
            if not more: break
            data += more
        c.sendall(b"got %d" % len(data))
        c.close()
print("listening", flush=True)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
`

func TestRudeSkillsAndRudeCallers(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.bundleOf(t, map[string]string{"rude.py": rude})
		limited := web + "resources: {pids: 300}\nenforcement: best-effort\n"
		begin := func(t *testing.T, what, policy string) *reachable {
			t.Helper()
			s := m.serve(t, policy, bundle, []string{"web=127.0.0.1:0"}, "./rude.py", what)
			return s
		}
		stop := func(t *testing.T, s *reachable) *helper.Result {
			t.Helper()
			if err := s.cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
			return s.end(t)
		}
		connect := func(t *testing.T, s *reachable) net.Conn {
			t.Helper()
			c, err := dial(s.at["web"])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		t.Run("half-close", func(t *testing.T) {
			s := begin(t, "half", limited)
			c := connect(t, s)
			data := bytes.Repeat([]byte("y"), 300_000)
			if _, err := c.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprintf("got %d", len(data)) {
				t.Errorf("%q, %v", got, err)
			}
			if r := stop(t, s); len(r.Network) != 1 || r.Network[0].Received != int64(len(data)) || r.Network[0].Error != "" {
				t.Errorf("%+v", r.Network)
			}
		})
		t.Run("reset", func(t *testing.T) {
			s := begin(t, "reset", limited)
			for range 5 {
				c := connect(t, s)
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(c); len(got) != 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("%q, %v", got, err)
				}
			}
			if r := stop(t, s); r.Usage.Net.Connections != 5 {
				t.Errorf("%+v, %+v", r.Usage.Net, r.Network)
			}
		})
		t.Run("a skill and a caller that never read", func(t *testing.T) {
			s := begin(t, "deaf", limited)
			c, other := connect(t, s), connect(t, s)
			if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			for sent := 0; ; {
				n, err := c.Write(make([]byte, 1<<20))
				if sent += n; err != nil {
					if !errors.Is(err, os.ErrDeadlineExceeded) && sent < 10<<20 { // or the limit of bytes ends it
						t.Errorf("after %d bytes: %v", sent, err)
					}
					break
				}
			}
			if _, err := other.Write([]byte("x")); err != nil {
				t.Errorf("another connection: %v", err)
			}
			if r := stop(t, s); r.Verdict != helper.Canceled {
				t.Errorf("%s", r.Verdict)
			}
		})
		t.Run("a skill that floods its caller", func(t *testing.T) {
			s := begin(t, "flood", strings.Replace(limited, "ingress:", "limits: {bytes: 1Mi}, ingress:", 1))
			n, _ := io.Copy(io.Discard, connect(t, s))
			if n > 1<<20 {
				t.Errorf("%d bytes came through", n)
			}
			r := stop(t, s)
			if len(r.Denials) == 0 || r.Denials[0].Direction != "in" || !strings.Contains(r.Denials[0].Rule, "network.limits.bytes") || r.Denials[0].Hint != "raise network.limits.bytes" {
				t.Errorf("%+v", r.Denials)
			}
		})
		t.Run("a caller that floods", func(t *testing.T) {
			s := begin(t, "deaf", strings.Replace(limited, "ingress:", "limits: {connections: 20}, ingress:", 1))
			var all []net.Conn
			for range 60 {
				all = append(all, connect(t, s))
			}
			if !soon(func() bool {
				ended := 0
				for _, c := range all {
					_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
						ended++
					}
				}
				return ended == 40
			}) {
				t.Error("the limit does not hold")
			}
			r := stop(t, s)
			if n := r.Usage.Net; n == nil || n.Connections != 20 || n.Refused != 40 {
				t.Errorf("%+v", n)
			}
		})
	})
}

// A skill that does not listen is waited for, and not for ever.
func TestASkillThatDoesNotListen(t *testing.T) {
	m := modes()[0]
	bundle := m.bundleOf(t, map[string]string{"main.sh": "#!/bin/sh\nsleep 60\n"})
	s := m.serve(t, web, bundle, []string{"9090=127.0.0.1:0"}, "./main.sh")
	c, err := dial(s.at["9090"])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 || time.Since(began) < 4*time.Second {
		t.Errorf("%d, %v after %v", n, err, time.Since(began))
	}
	if err := s.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if r := s.end(t); len(r.Network) != 1 || !strings.Contains(r.Network[0].Error, "nothing in the box has listened on port 9090") {
		t.Errorf("%+v", r.Network)
	}
}

// What is published is no way out, and none to another box.
func TestASkillDoesNotReachPublishedPorts(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		shared := m.dir(t)
		socket := filepath.Join(shared, "web.sock")
		s := m.serve(t, web, m.example(t, "local-server"), []string{"web=" + socket, "9090=127.0.0.1:0"})
		// Another box, with the same ports published, is shown the directory; TCP is tried at every address that could be meant.
		_, number, err := net.SplitHostPort(s.at["9090"])
		if err != nil {
			t.Fatal(err)
		}
		script := "for to in 127.0.0.1:8080 127.0.0.1:" + number + " 127.0.0.1:9090 [::1]:8080; do curl -s -m 2 http://$to/ && echo reached $to; done; curl -s -m 5 --unix-socket /shared/web.sock --data x http://x/ && echo reached the socket; true"
		r := call{mode: m, policy: web + "filesystem: {read: [{host: " + shared + ", path: /shared}]}\n", flags: []string{"--publish", "web=127.0.0.1:0"}, words: []string{"sh", "-c", script}}.run(t)
		if r.ExitCode != 0 || strings.Contains(r.Stdout, "reached 1") || strings.Contains(r.Stdout, "reached [") {
			t.Errorf("%d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
		}
		if strings.Contains(r.Stdout, "reached the socket") && m == asRoot {
			t.Error("a box of another user reached the socket")
		}
		m.postAs(t, socket, "/quit", "", `{"words": 0}`)
		s.end(t)
	})
}

func TestASessionIsReachedBetweenItsCalls(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		v := m.service(t)
		socket := filepath.Join(m.dir(t), "web.sock")
		policy := m.file(t, "policy.yaml", web)
		server, err := os.ReadFile("../examples/local-server/server.py")
		if err != nil {
			t.Fatal(err)
		}
		one := v.session(t, m.bundleOf(t, map[string]string{"server.py": string(server)}), "--policy", policy, "--publish", "web="+socket)
		one.says(t, "", "sh", "-c", "python3 server.py >/tmp/out 2>&1 </dev/null &")
		m.postAs(t, socket, "/", "a b", `{"words": 2}`)
		r := one.call(t, nil, "true")
		if len(r.Network) != 1 || r.Network[0].Direction != "in" {
			t.Errorf("%+v", r.Network)
		}
		m.postAs(t, socket, "/quit", "", `{"words": 0}`)
		if r := one.call(t, nil, "cat", "/tmp/out"); !strings.Contains(r.Stdout, `"requests": 2`) {
			t.Errorf("%q", r.Stdout)
		}
		if r, err := one.ask([]string{"--publish", "9090=127.0.0.1:0"}, "true"); err == nil {
			t.Errorf("a call publishes: %+v", r)
		}
		if _, errs, code := tell(v.sessionCommand("stop", one.id)); code != 0 {
			t.Error(errs)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
}
