//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group E: the caller's secrets, sockets and settings.

// canary is a value that the box must not hold anywhere.
const canary = "c4n4ry-7f3e9a1b5d"

// hunted wants the canary to be nowhere in the box of a call, except at the paths given.
func (c call) hunted(t *testing.T, except ...string) {
	t.Helper()
	got := c.attempts(t, "hunt", canary)
	if n := got["looked at"]; len(n) < 2 {
		t.Errorf("only %s files were looked at", n)
	}
	delete(got, "looked at")
	for path := range got {
		if !slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("the canary is in %s", path)
		}
	}
}

func TestThreat100EnvAllowlist(t *testing.T) {
	names := strings.Fields(`OPENAI_API_KEY ANTHROPIC_API_KEY GEMINI_API_KEY GITHUB_TOKEN GH_TOKEN NPM_TOKEN HF_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
		AWS_SESSION_TOKEN AWS_PROFILE SSH_AUTH_SOCK SSH_AGENT_PID DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS XDG_RUNTIME_DIR XDG_SESSION_ID HTTP_PROXY
		HTTPS_PROXY http_proxy https_proxy no_proxy LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONSTARTUP NODE_OPTIONS NODE_PATH PERL5OPT RUBYOPT BASH_ENV
		ENV PS4 PROMPT_COMMAND GIT_SSH_COMMAND GIT_CONFIG_GLOBAL EDITOR PAGER DISPLAY WAYLAND_DISPLAY USER LOGNAME MAIL SHELL PWD OLDPWD TERM LC_ALL TZ LANG
		KUBECONFIG DOCKER_HOST GOOGLE_APPLICATION_CREDENTIALS DATABASE_URL PGPASSWORD VAULT_TOKEN GCONV_PATH GOTRACEBACK GODEBUG _`)
	var caller []string
	for _, n := range names {
		caller = append(caller, n+"="+canary+"-"+n)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		var env []string
		c := call{mode: m, env: caller, policy: "version: 1\nenv: {pass: [EDITOR], set: {MODE: fast}}\n"}
		c.probe(t, &env, "environ")
		allowed := strings.Fields("PATH HOME LANG TZ TERM TMPDIR SKILLBOX_RESULT_FILE SKILLBOX_PARAMS_FILE EDITOR MODE")
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			if !slices.Contains(allowed, name) || (strings.Contains(value, canary) && name != "EDITOR") {
				t.Errorf("the skill got %s", e)
			}
		}
		if !slices.Contains(env, "EDITOR="+canary+"-EDITOR") {
			t.Errorf("what was granted is missing: %v", env)
		}
		call{mode: m, env: caller}.hunted(t)
	})
}

func TestThreat102SecretAtRest(t *testing.T) {
	const tmpfs = "0x1021994"
	inEachMode(t, func(t *testing.T, m mode) {
		home, out, bundle := m.dir(t), m.dir(t), m.probeBundle(t)
		c := call{
			mode: m, bundle: bundle, flags: []string{"--output", out}, env: []string{"KEY=" + canary, "HOME=" + home, "XDG_CACHE_HOME=" + home},
			policy: "version: 1\nenv: {secrets: [KEY]}\n",
		}
		r := c.probe(t, &map[string]string{}, "secret", "KEY")
		got := map[string]string{}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatal(err)
		}
		if got["mode"] != "-r--------" || got["filesystem"] != tmpfs {
			t.Errorf("mode %s on %s", got["mode"], got["filesystem"])
		}
		for _, attack := range []string{"write", "remove", "chmod"} {
			if got[attack] == "ok" {
				t.Errorf("%s succeeded", attack)
			}
		}
		// Careless copies in scratch are gone with the box.
		got = c.attempts(t, "secret", "KEY", "/tmp", "/home/skill", "/dev/shm")
		for _, dir := range []string{"/tmp", "/home/skill", "/dev/shm"} {
			if got["copy "+dir] != "ok" {
				t.Errorf("copy to %s: %s", dir, got["copy "+dir])
			}
		}
		c.hunted(t, "/run/secrets/KEY")
		if text, err := json.Marshal(r); err != nil || bytes.Contains(text, []byte(canary)) {
			t.Errorf("the envelope holds it: %s", text)
		}
		for _, dir := range []string{home, out, bundle, "/run", "/dev/shm", "/var/cache/skillbox", "/var/lib/skillbox", "/var/crash", "/var/lib/systemd/coredump"} {
			for _, path := range holding(t, dir, canary) {
				t.Errorf("it is left in %s", path)
			}
		}
	})
}

// holding lists the files below a directory that contain a text, or whose names do.
func holding(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // gone, or not readable by anybody
		}
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		defer f.Close()
		data, _ := io.ReadAll(io.LimitReader(f, 32<<20))
		if bytes.Contains(data, []byte(text)) || strings.Contains(path, text) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// While the skill runs, its secret is in no command line or environment but the client's own, which it came from.
func TestThreat102SecretWhileRunning(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		policy := m.file(t, "policy.yaml", "version: 1\nenv: {secrets: [KEY]}\n")
		c := m.command("exec", "--policy", policy, m.dir(t), "--", "/bin/sh", "-c", "echo ready; read x")
		c.Env = append(c.Env, "KEY="+canary)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 8)); err != nil {
			t.Error(err)
		}
		for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/self/mountinfo"} {
			for _, path := range globbed(t, pattern) {
				if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(canary)) && path != fmt.Sprintf("/proc/%d/environ", c.Process.Pid) {
					t.Errorf("it is in %s", path)
				}
			}
		}
		in.Close()
		if err := c.Wait(); err != nil && c.ProcessState.ExitCode() != 1 {
			t.Error(err)
		}
	})
}

func TestThreat103Dotfiles(t *testing.T) {
	files := []string{
		".ssh/id_ed25519", ".aws/credentials", ".config/gcloud/token", ".netrc", ".docker/config.json", ".kube/config", ".npmrc", ".gitconfig", ".bash_history",
		".mozilla/firefox/p/cookies.sqlite",
	}
	inEachMode(t, func(t *testing.T, m mode) {
		home := m.dir(t)
		var wanted, roots []string
		for _, f := range files {
			path := filepath.Join(home, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			m.write(t, path, canary, 0o644)
			wanted = append(wanted, path)
			roots = append(roots, filepath.Join("/home/skill", f), filepath.Join("/root", f))
		}
		c := call{mode: m, env: []string{"HOME=" + home}}
		var read map[string]string
		c.probe(t, &read, append([]string{"read"}, append(wanted, roots...)...)...)
		for path, answer := range read {
			if answer != "ENOENT" && (answer != "EACCES" || !strings.HasPrefix(path, "/root")) {
				t.Errorf("%s: %s", path, answer)
			}
		}
		got := c.attempts(t, "stat", "/home/skill", home, "/root", filepath.Dir(home))
		if !strings.HasPrefix(got["/home/skill"], "040700 ") || got[home] != "ENOENT" || got[filepath.Dir(home)] != "ENOENT" {
			t.Errorf("got %v", got)
		}
		c.hunted(t)
		var outside map[string]string
		m.unboxed(t, "/", &outside, append([]string{"read"}, wanted...)...)
		if outside[wanted[0]] != "read: "+canary {
			t.Errorf("outside a box it cannot be read either: %v", outside)
		}
	})
}

func TestThreat105AbstractSockets(t *testing.T) {
	name := fmt.Sprintf("@skillbox-test-%d", os.Getpid())
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	inEachMode(t, func(t *testing.T, m mode) {
		dir := m.dir(t)
		path := filepath.Join(dir, "socket")
		listenAt(t, path)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		var outside map[string]string
		m.unboxed(t, "/", &outside, "connect", name, path)
		if outside[name] != "ok" || outside[path] != "ok" {
			t.Errorf("outside a box: %v", outside)
		}
		got := call{mode: m}.attempts(t, "connect", name, path, "/run/docker.sock", "/run/dbus/system_bus_socket", "@/tmp/.X11-unix/X0", "@/org/freedesktop/systemd1/notify")
		for name, answer := range got {
			if want := map[bool]string{true: "ECONNREFUSED", false: "ENOENT"}[name[0] == '@']; answer != want {
				t.Errorf("%s: %s, want %s", name, answer, want)
			}
		}
	})
}

// The caller's stdio may be sockets; the skill gets pipes, which carry no descriptors, and finds no other socket.
func TestThreat106ScmRightsOut(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs := os.NewFile(uintptr(pair[1]), "theirs")
		defer unix.Close(pair[0])
		c := m.command("exec", m.probeBundle(t), "--", "/skill/probe", "send-descriptors")
		c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
		err = c.Run()
		theirs.Close()
		if err != nil {
			t.Error(err)
		}
		var text []byte
		for {
			data, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(16*4))
			n, oobn, _, _, err := unix.Recvmsg(pair[0], data, oob, unix.MSG_CMSG_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			if oobn > 0 {
				t.Error("descriptors came out of the box")
			}
			if n == 0 {
				break
			}
			text = append(text, data[:n]...)
		}
		got := map[string]string{}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		want := map[string]string{"descriptor 0": "ENOTSOCK", "descriptor 1": "ENOTSOCK", "descriptor 2": "ENOTSOCK", "sockets in the namespace": "0"}
		for key, answer := range got {
			if answer != want[key] {
				t.Errorf("%s: %s", key, answer)
			}
		}
	})
}

// What lies in the caller's stdin behind the skill's own is somebody else's to read, and not the skill's to write.
func TestThreat108StdinTTYBytes(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		r, w := m.pipe(t)
		defer r.Close()
		if _, err := w.WriteString("first\nsecond\n"); err != nil {
			t.Fatal(err)
		}
		c := m.command("exec", "--json", m.probeBundle(t), "--", "/skill/probe", "stdin")
		c.Stdin = r
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(rest, []byte("injected")) {
			t.Errorf("the skill wrote into the caller's stdin, which now holds %q", rest)
		}
		var result helper.Result
		got := map[string]string{}
		err = json.Unmarshal(out, &result)
		if err == nil {
			err = json.Unmarshal([]byte(result.Stdout), &got)
		}
		if err != nil || got["line"] != "first" || got["/dev/tty"] != "ENXIO" || got["write"] != "EBADF" {
			t.Errorf("%v: %v", err, got)
		}
		// With parameters the caller's stdin is not even looked at.
		r, w = m.pipe(t)
		defer r.Close()
		if _, err := w.WriteString(canary + "\n"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		c = m.command("exec", "--params", "{}", m.probeBundle(t), "--", "/skill/probe", "stdin")
		c.Stdin = r
		if out, err = c.Output(); err != nil || bytes.Contains(out, []byte(canary)) {
			t.Errorf("%v: %s", err, out)
		}
		if rest, err = io.ReadAll(r); err != nil || string(rest) != canary+"\n" {
			t.Errorf("%v: the caller's stdin now holds %q", err, rest)
		}
	})
}

// pipe is one that the mode's user made.
func (m mode) pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if cred := m.credential(); cred != nil {
		if err := r.Chown(int(cred.Uid), int(cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return r, w
}

func TestThreat109AgentConfigPoison(t *testing.T) {
	obeyed := []string{".git", ".bashrc", ".vscode", ".mcp.json", "AGENTS.md", "CLAUDE.md", ".claude", ".envrc", ".github", "package.json"}
	inEachMode(t, func(t *testing.T, m mode) {
		run := func(dir, more string) *helper.Result {
			policy := fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /work%s}]}\n", dir, more)
			return call{mode: m, policy: policy, words: []string{"/skill/probe", "plant", "/work", ".git/hooks/pre-commit", "new"}}.run(t)
		}
		for _, name := range obeyed {
			dir := m.dir(t)
			if slices.Contains([]string{".git", ".vscode", ".claude", ".github"}, name) {
				if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			} else {
				m.write(t, filepath.Join(dir, name), "", 0o644)
			}
			r := run(dir, "")
			if r.Verdict != helper.Refused || !strings.Contains(r.Error.Message, name) || r.Error.Field != "filesystem.write[0].host" {
				t.Errorf("%s: %s %v", name, r.Verdict, r.Error)
			}
			if name == ".git" {
				inside := filepath.Join(dir, name, "hooks")
				if err := os.Mkdir(inside, 0o755); err != nil {
					t.Fatal(err)
				}
				if r := run(inside, ""); r.Verdict != helper.Refused {
					t.Errorf("%s: %s", inside, r.Verdict)
				}
				if r := run(dir, ", dangerous: true"); r.Verdict != helper.Exited {
					t.Errorf("dangerous: %s %v", r.Verdict, r.Error)
				}
			}
		}
		// A directory of its own is writable, itself cannot be moved or replaced, and nothing appears beside it.
		dir := m.dir(t)
		r := run(dir, "")
		got := map[string]string{}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatalf("%v: %v", err, r.Error)
		}
		if got["new"] != "ok" || got["rename of the directory"] == "ok" || got["removal of the directory"] == "ok" || got["link beside it"] == "ok" {
			t.Errorf("got %v", got)
		}
		if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || slices.ContainsFunc(left, func(e fs.DirEntry) bool { return e.Name() == "link" }) {
			t.Errorf("%v %v", left, err)
		}
	})
}

// The bundle has inodes of its own (an overlay), so watching it tells nothing of the host. A directory that the policy shows does:
// it is the host's own, which docs/threats.md says.
func TestThreat111WatchHostActivity(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		bundle, shown := m.probeBundle(t), m.dir(t)
		stop, stopped := make(chan bool), make(chan bool)
		for _, dir := range []string{bundle, shown} {
			m.write(t, filepath.Join(dir, "busy"), "x", 0o644)
		}
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					for _, dir := range []string{bundle, shown} {
						os.ReadFile(filepath.Join(dir, "busy"))
					}
					os.Chtimes(filepath.Join(shown, "busy"), time.Now(), time.Now()) // a bundle that changes while it is read is refused
				}
			}
		}()
		got := call{mode: m, bundle: bundle, policy: "version: 1\nfilesystem: {read: [{host: " + shown + ", path: /shown}]}\n"}.attempts(t, "watch", "/skill", "/shown", "/")
		close(stop)
		<-stopped
		if got["/skill"] != "0" {
			t.Errorf("the host's work on the bundle is seen: %v", got)
		}
		if got["/shown"] == "0" {
			t.Errorf("the attempt itself does not work: %v", got)
		}
	})
}
