package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// networkBench measures what a way out of a box costs.
type networkBench struct {
	*work
	*spaces
	report
	ways []way
}

// way is who runs skillbox, and how a box's packets get out.
type way struct {
	name string
	user bool // an ordinary one
	path string
}

// network measures in namespaces of its own. It needs root, for two kinds of callers.
func (w *work) network(f *figures) (err error) {
	b := &networkBench{work: w}
	defer func() { f.Network = b.lines }()
	if os.Getuid() != 0 {
		b.title("network: not measured, for it takes root to be both kinds of callers")
		return nil
	}
	if err := b.buildInside(); err != nil {
		return err
	}
	if b.spaces, err = newSpaces(w.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.title("network, in namespaces of its own; %d processors, load %s", runtime.NumCPU(), load())
	if err := b.findWays(); err != nil {
		return err
	}
	for _, part := range []func() error{b.added, b.rules, b.connections, b.throughput} {
		if err := part(); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	b.title("load after the network's measurements: %s", load())
	return nil
}

// load is what else the machine does: the load average of 1, 5 and 15 minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	words := strings.Fields(string(text))
	if err != nil || len(words) < 3 {
		return "unknown"
	}
	return strings.Join(words[:3], " ")
}

// buildInside makes the bundle whose one program is what runs within the boxes.
func (b *networkBench) buildInside() error {
	c := exec.Command("go", "build", "-trimpath", "-o", b.inside(), "./integration/bench/inside")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build what runs inside: %w: %s", err, out)
	}
	return nil
}

func (b *networkBench) inside() string { return filepath.Join(b.dir, "bundle", "inside") }

// findWays tries which ways this build and this machine have.
func (b *networkBench) findWays() error {
	b.ways = []way{{"root, capture", false, "capture"}, {"rootless, capture", true, "capture"}}
	veth := way{"root, veth", false, "veth"}
	r, err := b.run(veth, b.policy(veth, fewRules(1)...), "true")
	switch {
	case err == nil:
		b.ways = append(b.ways, veth)
	case r != nil && r.Verdict == "refused" && r.Error != nil:
		b.title("network.path veth: not measured, for it is refused here: %s", r.Error.Message)
	default:
		return err
	}
	return nil
}

// policy is the text of one with these rules and without narrow limits. Without rules there is no network.
func (b *networkBench) policy(w way, rules ...string) string {
	// What a box gets of the processor is not what is measured here.
	head := fmt.Sprintf("version: 1\nenforcement: best-effort\ntimeout: 10m\nresources: {cpu: %d}\n", runtime.NumCPU())
	if len(rules) == 0 {
		return head
	}
	return head + "network:\n  path: " + w.path + "\n  limits: {bytes: 1Ti, connections: 1000000, rate: 1000000}\n  egress:\n    - " +
		strings.Join(rules, "\n    - ") + "\n"
}

// fewRules are for as many ranges and names, so few that one rule of each kind holds them.
func fewRules(n int) []string { return append(cidrRules(n), domainRules(n)...) }

func cidrRules(n int) []string {
	return listed("cidrs", n, func(i int) string { return rangeOf(i).String() })
}

func domainRules(n int) []string { return listed("domains", n, nameOf) }

// listed makes rules of at most so many entries as one may have.
func listed(key string, n int, entry func(int) string) (rules []string) {
	const most = 512
	for first := 0; first < n; first += most {
		var entries []string
		for i := first; i < min(first+most, n); i++ {
			entries = append(entries, entry(i))
		}
		rules = append(rules, fmt.Sprintf("{%s: [%s], ports: [%d]}", key, strings.Join(entries, ","), greetPort))
	}
	return rules
}

// command is skillbox exec on the host, or without a way the words alone.
func (b *networkBench) command(w *way, policy string, flags []string, words ...string) (*exec.Cmd, error) {
	if w != nil {
		file, err := os.CreateTemp(b.dir, "policy-*.yaml")
		if err != nil {
			return nil, err
		}
		_, err = file.WriteString(policy)
		if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
			return nil, err
		}
		start := filepath.Join(b.bin, "skillbox") + " exec"
		if w.user {
			start = asUser(start)
		}
		words = append(append(append(strings.Fields(start), flags...), "--policy", file.Name(), filepath.Dir(b.inside()), "--"), words...)
	}
	return exec.Command(words[0], words[1:]...), nil
}

// run runs words in a box and returns the envelope, if there is one also with an error.
func (b *networkBench) run(w way, policy string, words ...string) (*result, error) {
	c, err := b.command(&w, policy, []string{"--json"}, words...)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = b.host.Run(func() (err error) {
		out, err = c.Output()
		return err
	})
	var r *result
	if errJSON := json.Unmarshal(out, &r); err == nil {
		err = errJSON
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %.2000s", w.name, words[0], err, out)
	}
	return r, err
}

// probe is the program of inside, in a box or on the host itself, which waits for tasks.
type probe struct {
	name   string
	cmd    *exec.Cmd
	in     *json.Encoder
	out    *json.Decoder
	stderr bytes.Buffer
	close  func() error
}

// task is what inside takes.
type task struct {
	Do    string
	To    netip.AddrPort
	Names []string
	Times int
}

// begin starts a probe; without a way it is beside the boxes.
func (b *networkBench) begin(name string, w *way, policy string) (*probe, error) {
	program := b.inside()
	if w != nil {
		program = "/skill/inside"
	}
	cmd, err := b.command(w, policy, nil, program)
	if err != nil {
		return nil, err
	}
	s := &probe{name: name, cmd: cmd}
	cmd.Stderr = &s.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in, s.out = json.NewEncoder(in), json.NewDecoder(out)
	s.close = func() error {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("%s: %w: %s", s.name, err, s.stderr.String())
		}
		return nil
	}
	return s, b.host.Run(cmd.Start)
}

// ask returns what each attempt of a task took, in microseconds.
func (s *probe) ask(t task) ([]float64, error) {
	var a struct {
		Micros []float64
		Error  string
	}
	err := s.in.Encode(t)
	if err == nil {
		err = s.out.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, errors.Join(err, errors.New(s.stderr.String())))
	}
	return a.Micros, nil
}

// rotated calls f for each index, beginning with another one each round: what follows what is not always the same.
func rotated(round, n int, f func(i int) error) error {
	for i := range n {
		if err := f((round + i) % n); err != nil {
			return err
		}
	}
	return nil
}
