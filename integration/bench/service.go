package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// service measures calls of a user's own service, which has boxes ready: by the Go client at 20 calls a second beside the same program
// without a sandbox, and by the command line beside its peers.
func (w *work) service(f *figures) error {
	r := &report{}
	defer func() { f.Service = r.lines }()
	if err := w.buildCalls(); err != nil {
		return err
	}
	for _, part := range []func(*report) error{w.calls, w.atTheCommandLine} {
		if err := part(r); err != nil {
			return fmt.Errorf("service: %w", err)
		}
	}
	return nil
}

// buildCalls builds the program that makes calls, and gives its service a place.
func (w *work) buildCalls() error {
	dir := filepath.Join(w.dir, "runtime")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	c := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(w.bin, "calls"), "./integration/bench/calls")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build what calls: %w: %s", err, out)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// It leaves by itself soon after the last call.
	for name, value := range map[string]string{"XDG_RUNTIME_DIR": dir, "SKILLBOX_IDLE": "2s", "SKILLBOX_NO_DAEMON": ""} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// called is what the program calls answers.
type called struct {
	Call, Plain []float64
	Phases      map[string][]float64
	Ready       int
	Took        float64
	Starts      map[string]int // how far boxes were
}

// calling has the program calls do its task.
func (w *work) calling(task map[string]any) (*called, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	c := exec.Command(filepath.Join(w.bin, "calls"))
	var stderr bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(text), &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("calls: %w: %s", err, stderr.String())
	}
	a := &called{}
	return a, json.Unmarshal(out, a)
}

func (w *work) calls(r *report) error {
	large := filepath.Join(w.dir, "thousand")
	if err := fill(large, 1000); err != nil {
		return err
	}
	times := max(*runs, 5) * 5
	r.title("%d calls of true a second by the Go client, each beside one without a sandbox; load %s", 20, load())
	var first float64
	network := filepath.Join(w.dir, "network.yaml")
	if err := os.WriteFile(network, []byte("version: 1\nnetwork:\n  egress:\n    - domains: [example.com]\n      ports: [443]\n"), 0o644); err != nil {
		return err
	}
	for _, b := range []struct{ name, dir, policy string }{
		{"an empty bundle", w.empty, ""}, {"a bundle of 1,000 files", large, ""}, {"with rules for the network", w.empty, network},
	} {
		a, err := w.calling(map[string]any{"Bundle": b.dir, "Policy": b.policy, "Words": []string{"/usr/bin/true"}, "Times": times, "Every": 50 * time.Millisecond})
		if err != nil {
			return err
		}
		call, plain := median(a.Call), median(a.Plain)
		r.line(plain, "ms", "the program without a sandbox, median of %d", times)
		r.line(call, "ms", "a call, %s, median (%d of %d found a ready box)", b.name, a.Ready, times)
		switch {
		case first == 0:
			first = call
			r.bar(fmt.Sprintf("%.2f times the program alone", call/plain), "at most 2 ms and 2.5 times", call <= 2 && call <= 2.5*plain)
		case b.policy == "":
			r.bar(fmt.Sprintf("%+.2f ms", call-first), "at most +5 ms", call-first <= 5)
		default:
			r.bar(fmt.Sprintf("%.2f times without", call/first), "at most 1.2 times", call <= 1.2*first)
		}
		slices.Sort(a.Call)
		p99 := a.Call[len(a.Call)*99/100]
		r.line(p99, "ms", "a call, %s, 99th percentile", b.name)
		r.bar(fmt.Sprintf("%.1f times the median", p99/call), "at most 5 times", p99 <= 5*call)
		for _, name := range slices.Sorted(maps.Keys(a.Phases)) {
			r.line(median(a.Phases[name]), "ms", "  of that, %s", strings.TrimSuffix(name, "_ms"))
		}
	}
	return nil
}

// atTheCommandLine compares it with its peers, in turns.
func (w *work) atTheCommandLine(r *report) error {
	who, peers := "rootless", []command{{"bwrap --unshare-all", "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin true"}}
	if os.Getuid() == 0 {
		who = "root"
		peers = append(peers, command{"runc run", fmt.Sprintf("runc --root %s/state run --bundle %s/runc bench", w.dir, w.dir)}, command{"podman run, by runc", w.podman()})
	}
	all := append([]command{{"skillbox exec --mode user", filepath.Join(w.bin, "skillbox") + " exec --mode user " + w.empty + " -- true"}}, peers...)
	for _, pace := range []struct {
		name string
		args []string
	}{{"20 a second", []string{"--prepare", "sleep 0.05"}}, {"one after the other, faster than boxes are made", nil}} {
		times := map[string][]float64{}
		const rounds = 5
		for range rounds {
			for _, c := range all {
				t, err := hyperfine(c.line, max(*runs/rounds, 2), pace.args...)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				times[c.name] = append(times[c.name], t...)
			}
		}
		r.title("one run of true by the command line, %s, %s, medians; load %s", who, pace.name, load())
		own := median(times[all[0].name])
		r.line(own, "ms", "%s", all[0].name)
		for i, p := range peers {
			least := []float64{1, 4, 30}[i]
			ms := median(times[p.name])
			r.line(ms, "ms", "%s", p.name)
			if pace.args != nil { // the bars are about boxes that are ready
				r.bar(fmt.Sprintf("%.2f times ours", ms/own), fmt.Sprintf("at least %g times", least), ms >= least*own)
			}
		}
	}
	return nil
}
