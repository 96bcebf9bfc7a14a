//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// run calls skillbox on the world's host and returns the envelope, as call.run does on the machine.
func (w *world) run(t *testing.T, y way, c call) *helper.Result {
	t.Helper()
	return w.begin(t, y, c)()
}

// begin starts a box on the world's host; the returned function waits for its end and its envelope.
func (w *world) begin(t *testing.T, y way, c call) (end func() *helper.Result) {
	t.Helper()
	m := y.mode
	args := append([]string{"exec", "--json"}, c.flags...)
	if c.policy != "" {
		args = append(args, "--policy", m.file(t, "policy.yaml", c.policy))
	}
	if c.bundle == "" {
		c.bundle = m.sharedBundle(t)
	}
	args = append(append(args, c.bundle, "--"), c.words...)
	cmd := m.command(args...)
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Stdin = strings.NewReader(c.stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := w.host.Run(cmd.Start); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = ended()
	})
	return func() *helper.Result {
		t.Helper()
		var exit *exec.ExitError
		if err := ended(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		var r helper.Result
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatalf("no envelope: %v\nstdout: %s\nstderr: %s", err, stdout.String(), stderr.String())
		}
		return &r
	}
}

// probe runs one attempt of the probe in a box on the world's host. What is not text goes to its stdin, as JSON.
func (w *world) probe(t *testing.T, y way, policy string, got, stdin any, attempt ...string) *helper.Result {
	t.Helper()
	end := w.beginProbe(t, y, policy, stdin, attempt...)
	return end(got)
}

// beginProbe starts the probe in a box and leaves it running.
func (w *world) beginProbe(t *testing.T, y way, policy string, stdin any, attempt ...string) (end func(got any) *helper.Result) {
	t.Helper()
	c := call{mode: y.mode, policy: policy, words: append([]string{"/skill/probe"}, attempt...), stdin: asJSON(t, stdin)}
	ended := w.begin(t, y, c)
	return func(got any) *helper.Result {
		t.Helper()
		r := ended()
		if r.Verdict != helper.Exited || r.ExitCode != 0 {
			t.Fatalf("probe %.200q: verdict %s, exit %d, error %v\nstderr: %s\nstdout: %s", attempt, r.Verdict, r.ExitCode, r.Error, r.Stderr, r.Stdout)
		}
		if err := json.Unmarshal([]byte(r.Stdout), got); err != nil {
			t.Fatalf("probe %.200q: %v: %q", attempt, err, r.Stdout)
		}
		return r
	}
}

// beside runs an attempt on the world's host without a box, as the mode's user: what is refused inside must be possible there.
func (w *world) beside(t *testing.T, m mode, got, stdin any, attempt ...string) {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "probe"), attempt...)
	c.Dir = "/"
	c.Stdin = strings.NewReader(asJSON(t, stdin))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: m.credential()}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := w.host.Run(c.Start)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		t.Fatalf("probe %.200q on the host: %v: %s", attempt, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), got); err != nil {
		t.Fatalf("probe %.200q on the host: %v: %q", attempt, err, stdout.String())
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// leavesNothing checks, when the test ends, that skillbox left the host's network as it was: links, addresses, routes, rules, tables of
// nftables.
func (w *world) leavesNothing(t *testing.T) {
	t.Helper()
	w.awaitLinks(t)
	before := w.state(t)
	t.Cleanup(func() {
		w.awaitLinks(t)
		after := w.state(t)
		for began := time.Now(); after != before && time.Since(began) < patience(5*time.Second); time.Sleep(20 * time.Millisecond) {
			after = w.state(t)
		}
		if after != before {
			t.Errorf("the host's network was\n%sand now is\n%s", before, after)
		}
	})
}

// awaitLinks waits until the kernel has taken away the links of boxes that have ended. It does so with their namespaces, one after the
// other, which may take a second each on a busy machine.
func (w *world) awaitLinks(t *testing.T) {
	t.Helper()
	for began := time.Now(); strings.Contains(w.state(t), "\nsb") && time.Since(began) < 2*time.Minute; {
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *world) state(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := w.host.Run(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			addrs, failed := netlink.AddrList(l, netlink.FAMILY_ALL)
			err = errors.Join(err, failed)
			fmt.Fprintln(&text, l.Attrs().Name, l.Attrs().HardwareAddr, l.Attrs().Flags, addrs)
		}
		routes, failed := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		rules, failed2 := netlink.RuleList(netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Type == unix.RTN_UNICAST {
				fmt.Fprintln(&text, r)
			}
		}
		tables, failed3 := tables()
		fmt.Fprintln(&text, len(rules), "rules", len(tables), "tables of nftables")
		return errors.Join(err, failed, failed2, failed3)
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// tables are those of nftables in this namespace.
func tables() ([][]byte, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	return request.Execute(unix.NETLINK_NETFILTER, 0)
}

// gitRepository makes the repository at /git/repo.git of every web server, in which there is one file.
func (w *world) gitRepository(t *testing.T) {
	t.Helper()
	if w.repository != "" {
		return
	}
	dir := filepath.Join(filepath.Dir(binDir), "git")
	script := `set -e; git init -q -b main tree; cd tree; echo hello > file; git add file
		git -c user.name=x -c user.email=x@example.com commit -q -m first; cd ..; git clone -q --bare tree repo.git; cd repo.git; git update-server-info`
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", script)
	c.Dir, c.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.repository = dir
}

// python runs a script in a box and decodes what it prints.
func (w *world) python(t *testing.T, y way, policy string, got any, script string) *helper.Result {
	t.Helper()
	r := w.run(t, y, call{mode: y.mode, policy: policy, words: []string{"/usr/bin/python3", "-c", script}})
	if err := json.Unmarshal([]byte(r.Stdout), got); err != nil {
		t.Fatalf("%v: %s\n%s, %v, %s", err, r.Stdout, r.Verdict, r.Error, r.Stderr)
	}
	return r
}
