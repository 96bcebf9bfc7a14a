//go:build linux

package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// Group F: hostile bundles. What is refused, and how it is found, is tested in package bundle; here the whole program must refuse
// it: with the path in the envelope, without waiting, without running anything.

// refusedBundle runs a bundle that must be refused with this path and these words.
func refusedBundle(t *testing.T, m mode, dir, path, words string) {
	t.Helper()
	ran := filepath.Join(m.dir(t), "ran")
	m.write(t, ran, "", 0o666)
	policy := fmt.Sprintf("version: 1\nfilesystem: {write: [{host: %s, path: /mark}]}\n", filepath.Dir(ran))
	start := time.Now()
	r := call{mode: m, bundle: dir, policy: policy, words: []string{"/bin/sh", "-c", "echo ran >/mark/ran"}}.run(t)
	if d := time.Since(start); d > patience(20*time.Second) {
		t.Errorf("%s: refused after %v", path, d)
	}
	if r.Verdict != helper.Refused || r.ExitCode != 125 || r.Error == nil || !strings.Contains(r.Error.Message, words) || r.Error.File != path {
		t.Errorf("%s: %s, error %+v", path, r.Verdict, r.Error)
	}
	if text, err := os.ReadFile(ran); err != nil || len(text) > 0 {
		t.Errorf("%s: the skill ran: %q, %v", path, text, err)
	}
}

func TestThreat112SymlinkAbs(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for target, words := range map[string]string{"/etc/shadow": "absolute", "/root": "absolute", "../../etc/shadow": "leads out"} {
			dir := m.bundleOf(t, map[string]string{"main.py": "print(1)"})
			m.link(t, target, filepath.Join(dir, "data.csv"))
			refusedBundle(t, m, dir, "data.csv", words)
		}
	})
}

func TestThreat114HardlinkInArchive(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		dir := m.bundleOf(t, map[string]string{"main.py": "print(1)"})
		if err := os.Link(m.file(t, "secret", "secret"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
		refusedBundle(t, m, dir, "data", "second hard link")
	})
}

func TestThreat115SpecialFiles(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK, "device": unix.S_IFCHR, "SKILL.md": unix.S_IFIFO} {
			dir := m.bundleOf(t, map[string]string{"main.py": "print(1)"})
			path := filepath.Join(dir, name)
			if err := unix.Mknod(path, mode|0o666, int(unix.Mkdev(1, 5))); err != nil {
				if err == unix.EPERM {
					continue // a device needs root
				}
				t.Fatal(err)
			}
			m.own(t, path)
			refusedBundle(t, m, dir, name, "is a")
		}
	})
}

func TestThreat117ZipSlip(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		for name, shown := range map[string]string{`a\..\b`: `a\\..\\b`, "C:x": "C:x", "-rf": "-rf", "new\nline": `new\nline`, "esc\x1b[2J": `esc\x1b[2J`} {
			refusedBundle(t, m, m.bundleOf(t, map[string]string{"main.py": "print(1)", name: "x"}), shown, "name")
		}
	})
}

func TestThreat118DuplicateEntries(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		refusedBundle(t, m, m.bundleOf(t, map[string]string{"main.py": "x", "Main.py": "y"}), "main.py", "differs from")
		refusedBundle(t, m, m.bundleOf(t, map[string]string{"caf\u00e9": "x", "cafe\u0301": "y"}), "caf\u00e9", "differs from")
	})
}

// Two bundles change places all the time. A run may be refused for it; one that takes place runs what its digest says.
func TestThreat120BundleToctou(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		base := m.dir(t)
		digests := map[string]string{}
		for _, name := range []string{"one", "two"} {
			dir := filepath.Join(base, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, dir)
			m.write(t, filepath.Join(dir, "name"), name, 0o644)
			r := call{mode: m, bundle: dir, words: []string{"/bin/cat", "name"}}.run(t)
			if r.Stdout != name {
				t.Fatalf("%q %v", r.Stdout, r.Error)
			}
			digests[name] = r.Skill.Digest
		}
		stop, stopped := make(chan bool), make(chan bool)
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(base, "one"), unix.AT_FDCWD, filepath.Join(base, "two"), unix.RENAME_EXCHANGE)
					time.Sleep(200 * time.Microsecond)
				}
			}
		}()
		ran := 0
		for range load(8) {
			r := call{mode: m, bundle: filepath.Join(base, "one"), words: []string{"/bin/cat", "name"}}.run(t)
			switch {
			case r.Verdict == helper.Exited && digests[r.Stdout] == r.Skill.Digest:
				ran++
			case r.Verdict == helper.Exited:
				t.Errorf("%q ran under the digest %s of another bundle", r.Stdout, r.Skill.Digest)
			case r.Verdict != helper.Failed && r.Verdict != helper.Refused:
				t.Errorf("%s: %v", r.Verdict, r.Error)
			}
		}
		close(stop)
		<-stopped
		t.Logf("%d of %d ran", ran, load(8))
	})
}

// A bundle on FUSE whose server stops answering, about a manifest or the list of files. Half a minute is more patience than this
// test has, so the caller gives up: the client ends in any case, and what the kernel holds ends with the mount.
func TestThreat121FuseHang(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		if os.Getuid() != 0 {
			needs(t, "root", errors.New("FUSE is mounted without fusermount"))
		}
		for _, listed := range []bool{false, true} {
			dir, hangs := m.hangingMount(t, listed)
			var out bytes.Buffer
			c := m.command("exec", "--json", dir, "--", "/bin/true")
			c.Stdout = &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-hangs:
			case <-time.After(patience(10 * time.Second)):
				t.Error("nobody asked the file system")
			}
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if m != asRoot || listed {
				time.AfterFunc(200*time.Millisecond, func() { unix.Unmount(dir, unix.MNT_DETACH|unix.MNT_FORCE) })
			}
			stuck := time.AfterFunc(patience(20*time.Second), func() {
				t.Errorf("listed %t: the client hangs", listed)
				c.Process.Kill()
			})
			_ = c.Wait() // the envelope says how
			stuck.Stop()
			var r helper.Result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Success || r.Error == nil {
				t.Errorf("listed %t: %v: %s", listed, err, out.String())
			}
		}
	})
}

// hangingMount mounts a FUSE file system with an empty root directory. Its server answers nothing about what is in it: not when a
// name is looked up, or, with names absent, when it is to be listed; hangs tells when that begins. The protocol is that of <linux/fuse.h>.
func (m mode) hangingMount(t *testing.T, absent bool) (dir string, hangs <-chan bool) {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	needs(t, "FUSE", err)
	at := m.dir(t)
	if err := unix.Mount("hang", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)); err != nil {
		unix.Close(dev)
		needs(t, "FUSE", err)
	}
	t.Cleanup(func() {
		unix.Unmount(at, unix.MNT_DETACH|unix.MNT_FORCE) // force ends the connection, and with it every call that hangs
		unix.Close(dev)
	})
	unanswered := make(chan bool, 1)
	go answerFuse(dev, absent, unanswered)
	return at, unanswered
}

func answerFuse(dev int, absent bool, unanswered chan<- bool) {
	const opLookup, opGetattr, opStatfs, opGetxattr, opInit, opOpendir = 1, 3, 17, 22, 26, 27
	request := make([]byte, 64<<10)
	for {
		n, err := unix.Read(dev, request)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		var body []byte
		var failure unix.Errno
		switch op := binary.NativeEndian.Uint32(request[4:]); {
		case op == opInit:
			body = make([]byte, 64)
			binary.NativeEndian.PutUint32(body[0:], 7)
			binary.NativeEndian.PutUint32(body[4:], 31)
			binary.NativeEndian.PutUint32(body[20:], 4096) // max_write
		case op == opOpendir:
			body = make([]byte, 16)
		case op == opStatfs:
			body = make([]byte, 80)
		case op == opGetattr:
			body = make([]byte, 104)
			binary.NativeEndian.PutUint64(body[0:], 3600)        // valid for an hour
			binary.NativeEndian.PutUint64(body[16:], 1)          // inode
			binary.NativeEndian.PutUint32(body[16+60:], 0o40755) // mode
			binary.NativeEndian.PutUint32(body[16+64:], 2)       // links
			binary.NativeEndian.PutUint32(body[16+80:], 4096)    // block size
		case op == opGetxattr:
			failure = unix.ENOSYS
		case op == opLookup && absent:
			failure = unix.ENOENT
		default:
			select {
			case unanswered <- true:
			default:
			}
			continue
		}
		out := make([]byte, 16, 16+len(body))
		binary.NativeEndian.PutUint32(out[0:], uint32(16+len(body)))
		binary.NativeEndian.PutUint32(out[4:], uint32(-int32(failure)))
		copy(out[8:], request[8:16])
		unix.Write(dev, append(out, body...))
	}
}

func TestThreat123ShebangOutside(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		tool := m.file(t, "tool", "#!/bin/sh\necho OUTSIDE\n")
		if err := os.Chmod(tool, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := m.bundleOf(t, map[string]string{
			"outside": "#!" + tool + "\n", "self": "#!/proc/self/exe\n", "trace": "#!/bin/sh -x evil\necho RAN\n", "missing": "#!/opt/no/such\n",
			"bare": "#!\necho RAN\n", "endless": "#!/skill/endless\n", "memory": "#!/proc/self/mem\n",
		})
		for name, want := range map[string]struct {
			code  int // 0 for any but success
			words string
		}{
			"outside": {127, "its interpreter " + tool + " does not exist"},
			"missing": {127, "/opt/no/such does not exist"},
			"self":    {}, "trace": {}, "endless": {}, "memory": {},
		} {
			r := call{mode: m, bundle: dir, words: []string{"./" + name}}.run(t)
			text := r.Stdout + r.Stderr
			if r.Error != nil {
				text += r.Error.Message
			}
			if r.ExitCode == 0 || (want.code != 0 && r.ExitCode != want.code) || !strings.Contains(text, want.words) || strings.Contains(text, "OUTSIDE") || strings.Contains(text, "RAN") {
				t.Errorf("%s: exit %d, %s: %q", name, r.ExitCode, r.Verdict, text)
			}
		}
	})
}

func TestThreat124ArgInjection(t *testing.T) {
	words := []string{"--bind", "--privileged", "-c", ";id", "$(id)", "`id`", "a b", "", "*", "\\", "'", `"`, "new\nline", "--", "{{.}}", "%s"}
	inEachMode(t, func(t *testing.T, m mode) {
		var argv []string
		call{mode: m}.probe(t, &argv, append([]string{"argv"}, words...)...)
		if !slices.Equal(argv, append([]string{"/skill/probe", "argv"}, words...)) {
			t.Errorf("got %q", argv)
		}
		base := m.dir(t)
		probe, err := os.ReadFile(filepath.Join(binDir, "probe"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"--bind", "--privileged", ";id", "$(id)", "a b", "colon:name,ro", "new\nline"} {
			dir := filepath.Join(base, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, dir)
			m.write(t, filepath.Join(dir, "probe"), string(probe), 0o755)
			// As a relative path from its parent, as a shell's glob would give it.
			c := m.command("exec", "--", name, "/skill/probe", "argv")
			c.Dir = base
			if out, err := c.Output(); err == nil {
				t.Errorf("%q after -- was taken for a bundle: %s", name, out)
			}
			c = m.command("exec", "./"+name, "--", "/skill/probe", "argv", name)
			c.Dir = base
			out, err := c.Output()
			if err != nil || json.Unmarshal(out, &argv) != nil || len(argv) != 3 || argv[2] != name {
				t.Errorf("%q: %v: %s", name, err, out)
			}
		}
	})
}

func TestThreat126BundleWriteback(t *testing.T) {
	script := `
import os, sys, subprocess
sys.dont_write_bytecode = False
import lib
tried = {}
for name, f in {
    "poison the source": lambda: open("/skill/lib.py", "a").write("x = 2\n"),
    "plant byte code": lambda: os.makedirs("/skill/__pycache__"),
    "replace itself": lambda: os.rename("/skill/lib.py", "/skill/old.py"),
    "write through itself": lambda: os.close(os.open("/proc/self/cwd/main.py", os.O_WRONLY)),
    "remove": lambda: os.unlink("/skill/lib.py"),
}.items():
    try:
        f()
        tried[name] = "ok"
    except OSError as err:
        tried[name] = err.strerror
import json
print(json.dumps({"x": lib.x, **tried}))
`
	inEachMode(t, func(t *testing.T, m mode) {
		dir := m.bundleOf(t, map[string]string{"main.py": script, "lib.py": "x = 1\n"})
		before := hashes(t, dir)
		digest := ""
		for _, bundle := range []string{"read-only", "copy-on-write", "read-only"} {
			r := call{mode: m, bundle: dir, policy: "version: 1\nrootfs: {bundle: " + bundle + "}\n", words: []string{"/usr/bin/python3", "main.py"}}.run(t)
			var got map[string]any
			if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
				t.Fatalf("%v: %s %v", err, r.Stderr, r.Error)
			}
			if got["x"] != 1.0 {
				t.Errorf("%s: an earlier run left its mark: %v", bundle, got)
			}
			delete(got, "x")
			for name, answer := range got {
				if (answer == "Read-only file system") != (bundle == "read-only") && name != "plant byte code" {
					t.Errorf("%s: %s: %v", bundle, name, answer)
				}
			}
			if digest != "" && r.Skill.Digest != digest {
				t.Errorf("the digest changed from %s to %s", digest, r.Skill.Digest)
			}
			digest = r.Skill.Digest
		}
		if after := hashes(t, dir); !maps.Equal(before, after) {
			t.Errorf("the bundle changed: before %v, after %v", before, after)
		}
	})
}

// overlayfs leaves open what a skill sees of a lower directory that the host changes meanwhile; the run must survive it, and the
// digest is that of what was there when it began.
func TestThreat127OverlayLowerChange(t *testing.T) {
	script := "cat a b/c; touch /sync/began; while [ ! -e /sync/changed ]; do sleep 0.01; done; cat a b/c new >/dev/null 2>&1; ls >/dev/null"
	inEachMode(t, func(t *testing.T, m mode) {
		for _, bundle := range []string{"read-only", "copy-on-write"} {
			dir, shared := m.bundleOf(t, map[string]string{"a": "1", "b/c": "2"}), m.dir(t)
			clean := call{mode: m, bundle: dir, words: []string{"/bin/true"}}.run(t).Skill.Digest
			go func() {
				for began := time.Now(); time.Since(began) < patience(5*time.Second); time.Sleep(5 * time.Millisecond) {
					if _, err := os.Lstat(filepath.Join(shared, "began")); err == nil {
						break
					}
				}
				os.WriteFile(filepath.Join(dir, "a"), []byte("changed"), 0o644)
				os.RemoveAll(filepath.Join(dir, "b"))
				os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o644)
				os.WriteFile(filepath.Join(shared, "changed"), nil, 0o644)
			}()
			policy := fmt.Sprintf("version: 1\nrootfs: {bundle: %s}\nfilesystem: {write: [{host: %s, path: /sync}]}\n", bundle, shared)
			r := call{mode: m, bundle: dir, policy: policy, words: []string{"/bin/sh", "-c", script}}.run(t)
			if !r.Success || r.Skill.Digest != clean || r.Stdout != "12" {
				t.Errorf("%s: %s %v %q %s", bundle, r.Verdict, r.Error, r.Stdout, r.Stderr)
			}
		}
	})
}
