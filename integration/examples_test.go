//go:build linux

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"skillbox/helper"
)

// Every folder of examples runs in every mode and gives the result that its README promises.

// example copies a folder of examples to where the mode's user can read it.
func (m mode) example(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(m.dir(t), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../examples", name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runs wants the result of an example to be this JSON.
func (c call) runs(t *testing.T, want string) *helper.Result {
	t.Helper()
	r := c.run(t)
	var got, expected any
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(r.Result, &got); err != nil || !r.Success || !reflect.DeepEqual(got, expected) {
		t.Errorf("%s, %v: %s\nerror %v, stderr %s", r.Verdict, err, r.Result, r.Error, r.Stderr)
	}
	return r
}

func TestExampleWordCount(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		c := call{mode: m, bundle: m.example(t, "word-count"), flags: []string{"--params", `{"text": "a b a"}`}}
		c.runs(t, `{"words": 3, "unique": 2, "top": [["a", 2], ["b", 1]], "lines": 1, "characters": 5}`)
		c.flags = []string{"--params", `{"path": "/input/x.txt", "top": 1}`, "--input", m.file(t, "x.txt", "one two two\n")}
		c.runs(t, `{"words": 3, "unique": 2, "top": [["two", 2]], "lines": 1, "characters": 12}`)
	})
}

func TestExamplePDFText(t *testing.T) {
	needs(t, "python3-pypdf", exec.Command("/usr/bin/python3", "-c", "import pypdf").Run())
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.example(t, "pdf-text")
		r := call{mode: m, bundle: bundle, flags: []string{"--input", filepath.Join(bundle, "sample.pdf")}}.run(t)
		if !r.Success || !strings.Contains(string(r.Result), "The tide table") || !strings.Contains(string(r.Result), `"pages":2`) {
			t.Errorf("%s: %s %s", r.Verdict, r.Result, r.Stderr)
		}
	})
}

func TestExampleNodeSlugify(t *testing.T) {
	_, err := os.Stat("/usr/bin/node")
	needs(t, "nodejs", err)
	inEachMode(t, func(t *testing.T, m mode) {
		c := call{mode: m, bundle: m.example(t, "node-slugify"), flags: []string{"--params", `{"text": "Smørrebrød & Crème brûlée!"}`}}
		c.runs(t, `{"slug": "smorrebrod-and-creme-brulee"}`)
	})
}

func TestExampleBashReport(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		out := m.dir(t)
		r := call{
			mode: m, bundle: m.example(t, "bash-report"),
			flags: []string{"--params", `{"title": "Delivery"}`, "--input", m.file(t, "a.txt", "one\ntwo\n"), "--input", m.file(t, "b.txt", "x"), "--output", out},
		}.runs(t, `{"report": "report.md", "title": "Delivery", "files": 2, "bytes": 9}`)
		text, err := os.ReadFile(filepath.Join(out, "report.md"))
		if err != nil || !strings.Contains(string(text), "# Delivery") || !strings.Contains(string(text), "| a.txt | 8 | 2 |") {
			t.Errorf("%q %v", text, err)
		}
		if len(r.Outputs) != 1 || r.Outputs[0].Bytes != int64(len(text)) {
			t.Errorf("outputs %v", r.Outputs)
		}
	})
}

func TestExampleStaticGo(t *testing.T) {
	_, err := os.Stat("../examples/static-go/bin/static-go")
	needs(t, "make build", err)
	inEachMode(t, func(t *testing.T, m mode) {
		call{mode: m, bundle: m.example(t, "static-go"), flags: []string{"--params", `{"csv": "city,km\nOslo,2\nBergen,4\n"}`}}.runs(t,
			`{"rows": 2, "columns": [{"name": "km", "count": 2, "min": 2, "max": 4, "mean": 3}], "skipped": 0}`)
	})
}

func TestExampleSkillwareHash(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		call{mode: m, bundle: m.example(t, "skillware-hash"), flags: []string{"--params", `{"text": "abc"}`}}.runs(t,
			`{"bytes": 3, "digests": {"sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}}`)
	})
}

func TestExampleAgentSkillDates(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		c := call{mode: m, bundle: m.example(t, "agent-skill-dates")}
		c.words = []string{"scripts/business-days.py", "2026-12-21", "2027-01-08", "--holidays", "2026-12-25,2027-01-01"}
		c.runs(t, `{"from": "2026-12-21", "to": "2027-01-08", "business_days": 13}`)
		c.words = []string{"scripts/iso-week.sh", "2027-01-01"}
		if r := c.run(t); !r.Success || r.Stdout != "2027-01-01 2026-W53-5\n" {
			t.Errorf("%s %q %s", r.Verdict, r.Stdout, r.Stderr)
		}
	})
}

// A session: each answer arrives before the next question is asked.
func TestExampleJSONRPCEcho(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		c := m.command("exec", m.example(t, "jsonrpc-echo"))
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
		stuck := time.AfterFunc(20*time.Second, func() { c.Process.Kill() })
		defer stuck.Stop()
		answers := bufio.NewReader(out)
		for id, question := range []string{`"method": "echo", "params": ["hello"]`, `"method": "ping"`, `"method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}`} {
			if _, err := fmt.Fprintf(in, `{"jsonrpc": "2.0", "id": %d, %s}`+"\n", id, question); err != nil {
				t.Fatal(err)
			}
			line, err := answers.ReadString('\n')
			var answer struct {
				ID     int
				Result json.RawMessage
			}
			if err != nil || json.Unmarshal([]byte(line), &answer) != nil || answer.ID != id || len(answer.Result) == 0 {
				t.Fatalf("%v: %q", err, line)
			}
		}
		in.Close()
		rest, err := io.ReadAll(answers)
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		if err != nil || len(rest) > 0 {
			t.Errorf("%v: %q", err, rest)
		}
	})
}

func TestExampleHostile(t *testing.T) {
	abstract := fmt.Sprintf("skillbox-hostile-%d", os.Getpid())
	unixListener, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer unixListener.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	params := fmt.Sprintf(`{"canary": %q, "abstract": %q, "port": %d}`, canary, abstract, tcp.Addr().(*net.TCPAddr).Port)
	inEachMode(t, func(t *testing.T, m mode) {
		profiles := []string{"default"}
		if m == modes()[0] {
			profiles = append(profiles, "strict")
		}
		for _, profile := range profiles {
			r := call{
				mode: m, bundle: m.example(t, "hostile"), flags: []string{"--params", params}, env: []string{"AWS_SECRET_ACCESS_KEY=" + canary},
				policy: "version: 1\nsyscalls: {profile: " + profile + "}\n",
			}.run(t)
			var report struct {
				Attempts []struct {
					ID, Tried, Got string
					Escaped        bool
				}
				Escaped int
			}
			if err := json.Unmarshal(r.Result, &report); err != nil || !r.Success {
				t.Fatalf("%s: %v: %s %s", profile, err, r.Stdout, r.Stderr)
			}
			if len(report.Attempts) < 40 || report.Escaped != 0 {
				t.Errorf("%s: %d attempts, %d escaped", profile, len(report.Attempts), report.Escaped)
			}
			for _, a := range report.Attempts {
				slow := strings.Contains(a.Got, "no answer in") && patience(1) == 1 // what is emulated may take longer than its patience
				if a.Escaped || slow || strings.Contains(a.Got, "broken") {
					t.Errorf("%s: %s (%s): %s", profile, a.ID, a.Tried, a.Got)
				}
			}
		}
	})
}

func TestSamplePoliciesRun(t *testing.T) {
	files, err := filepath.Glob("../examples/policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	inEachMode(t, func(t *testing.T, m mode) {
		bundle := m.example(t, "word-count")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// The directories that files.yaml names are the reader's to make; here they are others.
			policy := strings.NewReplacer("/srv/reference", m.dir(t), "/srv/results", m.dir(t)).Replace(string(text))
			c := call{mode: m, bundle: bundle, policy: policy, flags: []string{"--params", `{"text": "a"}`}, env: []string{"OPENAI_API_KEY=sk"}}
			if r := c.run(t); !r.Success {
				t.Errorf("%s: %s %v %s", file, r.Verdict, r.Error, r.Stderr)
			}
			check := m.command("policy", "check", m.file(t, filepath.Base(file), string(text)))
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", file, err, out)
			}
		}
	})
}
