//go:build linux && cgo

package seccomp

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// workload runs a program of the host under the filter and returns what it prints. A missing program skips.
func workload(t testing.TB, s Spec, argv ...string) string {
	t.Helper()
	path, err := installed(argv[0])
	if err != nil {
		t.Skip(err)
	}
	p := runProbe(t, s, probeRequest{Program: program(t, s), Exec: append([]string{path}, argv[1:]...)})
	if !p.state.Success() {
		t.Errorf("%+v: %s ended with %v: %s%s\ndenied: %+v", s, argv[0], p.state, p.stdout, p.stderr, p.denials)
	}
	for _, d := range p.denials {
		t.Logf("%s %s: denied %s %s %s ×%d", s.Profile, argv[0], d.Syscall, d.Detail, d.Errno, d.Count)
	}
	return p.stdout
}

// installed prefers the system's program to what a version manager puts before it.
func installed(name string) (string, error) {
	if path := "/usr/bin/" + name; exists(path) {
		return path, nil
	}
	return exec.LookPath(name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const pythonWork = `
import asyncio, sqlite3, threading, multiprocessing, subprocess, json, tempfile, os, socket, hashlib, shutil
def square(n): return n * n
if __name__ == "__main__":
    out = []
    threads = [threading.Thread(target=out.append, args=(n,)) for n in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert sorted(out) == list(range(8))
    async def main():
        p = await asyncio.create_subprocess_exec("true")
        await asyncio.gather(p.wait(), *[asyncio.sleep(0.001) for _ in range(10)])
        await asyncio.to_thread(square, 3)
    asyncio.run(main())
    db = sqlite3.connect(os.path.join(tempfile.mkdtemp(), "x.db"))
    db.execute("create table t (n int)"); db.execute("insert into t values (7)"); db.commit()
    assert db.execute("select n from t").fetchone() == (7,)
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    assert subprocess.run(["echo", "hi"], capture_output=True).stdout == b"hi\n"
    src = tempfile.NamedTemporaryFile(); src.write(b"x" * 100000); src.flush()
    shutil.copy(src.name, src.name + ".copy")
    with multiprocessing.Pool(2) as pool: assert pool.map(square, range(10)) == [n * n for n in range(10)]
    print("done", hashlib.sha256(b"").hexdigest()[:4])
`

const nodeWork = `
const fs = require("fs"), {Worker} = require("worker_threads"), {execFileSync} = require("child_process"), crypto = require("crypto");
fs.writeFileSync("x.txt", "hello"); fs.copyFileSync("x.txt", "y.txt");
if (execFileSync("cat", ["y.txt"]).toString() !== "hello") throw new Error("child");
crypto.pbkdf2("a", "b", 1000, 32, "sha256", () => {
  const w = new Worker("require('worker_threads').parentPort.postMessage(6*7)", {eval: true});
  w.on("message", m => { if (m === 42) console.log("done"); });
});
`

func TestProgramsRunUnderTheirProfile(t *testing.T) {
	for _, c := range []struct {
		name, profiles string
		argv           []string
		want           string
	}{
		{"python3", everyProfile, []string{"python3", "-c", pythonWork}, "done e3b0"},
		{"node", everyProfile, []string{"node", "-e", nodeWork}, "done"},
		{"bash", everyProfile, []string{"bash", "-c", `echo a b a | tr ' ' '\n' | sort | uniq -c; x=$(seq 3 | while read n; do echo $n; done); cat <<< "$x" > f; cp f g; cmp f g && echo done; ls -la >/dev/null; sleep 0.01 & wait`}, "done"},
		{"git", everyProfile, []string{"git", "-c", "init.defaultBranch=main", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "alias.work=!git init -q . && echo x > x && git add x && git commit -qm x && git log --oneline | wc -l", "work"}, "1"},
		{"tar", everyProfile, []string{"bash", "-c", "mkdir d && echo x > d/x && ln -s x d/y && tar czf d.tgz d && rm -r d && tar xzf d.tgz && readlink d/y && cat d/x"}, "x\nx"},
		{"modes", everyProfile, []string{"bash", "-c", "umask 027; install -m 750 /usr/bin/true t && ./t && chmod 1777 . && mkdir -m 2775 g 2>/dev/null; tar cf m.tar t && rm t && tar xpf m.tar && ./t && cp -a t u && mktemp -p . >/dev/null && stat -c %a u"}, "750"},
		{"perl", everyProfile, []string{"perl", "-e", `use File::Temp; my $f = File::Temp->new; print $f "x"; close $f; my $p = fork; exit 0 unless $p; wait; print "done" if -s $f->filename`}, "done"},
		{"gcc", "default", []string{"bash", "-c", `command -v gcc >/dev/null || { echo 42; exit; }; printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void*a){return a;}int main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts("42");}' > x.c && gcc -pthread x.c -o x && ./x`}, "42"},
		{"loopback server", "default", []string{"python3", "-c", `
import threading, urllib.request, http.server
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%d/" % s.server_port).status)
`}, "200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, profile := range strings.Fields(c.profiles) {
				for _, report := range []bool{false, true} {
					s := Spec{Profile: profile, Report: report}
					if out := workload(t, s, c.argv...); !strings.Contains(out, c.want) {
						t.Errorf("%+v: got %q", s, out)
					}
				}
			}
		})
	}
}

func TestADebuggerNeedsItsProfile(t *testing.T) {
	argv := []string{"python3", "-c", `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())`}
	if out := workload(t, Spec{Profile: "debug"}, argv...); strings.TrimSpace(out) != "0 0" {
		t.Errorf("debug: PTRACE_TRACEME says %q", out)
	}
	if out := workload(t, Spec{}, argv...); strings.TrimSpace(out) != "-1 1" {
		t.Errorf("default: PTRACE_TRACEME says %q", out)
	}
}
