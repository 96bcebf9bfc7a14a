// The bench compares one sandboxed run of /usr/bin/true through the command line with plain exec, bubblewrap and runc, in one run on
// one machine, and prints medians and ratios: `make bench`. The peers get the namespaces and the mounts that skillbox makes, so
// that the ratio compares programs and not how much they were asked to do. It also measures
// what a control group and a bundle's size cost, and, in network namespaces of its own, what a way out of the box does.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// benchUID is an ordinary user with sub-ids that exists only in the bench's own mount namespace.
const benchUID = 61300

var (
	bin  = flag.String("bin", "bin", "`directory` with skillbox, skillboxd and skillbox-init")
	runs = flag.Int("runs", 60, "timed runs of each command")
	out  = flag.String("json", "", "`file` that takes the figures as JSON")
	only = flag.String("only", "", "`section` to measure alone: compare, phases, groups, bundles, service, preload, skillware, audit, memory, cpu, network or images")
)

func main() {
	flag.Parse()
	if err := bench(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figures are what a run of the bench found: medians in milliseconds by name, and ratios.
type figures struct {
	Machine string             `json:"machine"`
	Medians map[string]float64 `json:"medians_ms"`
	Phases  map[string]float64 `json:"phases_ms"`
	Service []line             `json:"service"`
	Preload []line             `json:"preload"`
	Audit   []line             `json:"audit"`
	Memory  []line             `json:"memory"`
	CPU     []line             `json:"cpu"`
	Network []line             `json:"network"`
	Images  []line             `json:"images"`

	Skillware []line `json:"skillware"`
}

func bench() error {
	for _, program := range []string{"hyperfine", "bwrap", "runc", "podman", "iperf3"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: make bench installs what it compares with", err)
		}
	}
	if os.Getuid() == 0 && os.Getenv("SKILLBOX_BENCH_NS") == "" {
		return inNamespace()
	}
	// Who measures services starts one.
	if err := os.Setenv("SKILLBOX_NO_DAEMON", "1"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "skillbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	w := &work{dir: dir}
	if err := w.prepare(); err != nil {
		return err
	}
	f := &figures{Machine: machine(), Medians: map[string]float64{}, Phases: map[string]float64{}}
	for _, section := range []struct {
		name    string
		measure func(*figures) error
	}{{"compare", w.compare}, {"phases", w.phases}, {"groups", w.groups}, {"bundles", w.bundles}, {"service", w.service}, {"preload", w.preload}, {"skillware", w.skillware}, {"audit", w.audit}, {"memory", w.memory}, {"cpu", w.cpu}, {"network", w.network}, {"images", w.images}} {
		if *only != "" && *only != section.name {
			continue
		}
		if err := section.measure(f); err != nil {
			return err
		}
	}
	f.print()
	if *out == "" {
		return nil
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*out, append(text, '\n'), 0o644)
}

// inNamespace runs the bench again where account files can be replaced without changing the host's.
func inNamespace() error {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), "SKILLBOX_BENCH_NS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return c.Run()
}

func machine() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

type work struct{ dir, bin, empty string }

func (w *work) prepare() error {
	w.bin, w.empty = filepath.Join(w.dir, "bin"), filepath.Join(w.dir, "empty")
	for _, d := range []string{w.bin, w.empty} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"skillbox", "skillboxd", "skillbox-init"} {
		data, err := os.ReadFile(filepath.Join(*bin, name))
		if err != nil {
			return fmt.Errorf("%w: run make build first", err)
		}
		if err := os.WriteFile(filepath.Join(w.bin, name), data, 0o755); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := addUser(w.dir); err != nil {
			return err
		}
		if err := w.runcBundle("runc", rootIDs()); err != nil {
			return err
		}
	}
	return w.runcBundle("runc-rootless", userIDs())
}

// addUser shows this namespace account files with one more user.
func addUser(dir string) error {
	// Where the user's runs are recorded, and what is said of that; root's have places of their own.
	state := filepath.Join(dir, "user-state")
	if err := errors.Join(os.Mkdir(state, 0o700), os.Chown(state, benchUID, benchUID), os.Setenv("XDG_STATE_HOME", state), os.Setenv("XDG_CONFIG_HOME", state)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("sbbench:x:%d:%d::/nonexistent:/bin/sh\n", benchUID, benchUID),
		"/etc/subuid": "sbbench:1600000000:65536\n",
		"/etc/subgid": "sbbench:1600000000:65536\n",
	} {
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, append(old, line...), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(copied, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// command is one line of the comparison.
type command struct{ name, line string }

// asUser prefixes a command so that an ordinary user runs it; an ordinary user needs no prefix.
func asUser(line string) string {
	if os.Getuid() != 0 {
		return line
	}
	return fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups %s", benchUID, benchUID, line)
}

func (w *work) compare(f *figures) error {
	skillbox := filepath.Join(w.bin, "skillbox") + " exec " + w.empty + " -- true"
	commands := []command{{"plain exec", "/usr/bin/true"}}
	if os.Getuid() == 0 {
		commands = append(commands,
			command{"bwrap, root", w.bwrap()},
			command{"runc run, root", fmt.Sprintf("runc --root %s/state run --bundle %s/runc bench", w.dir, w.dir)},
			command{"skillbox exec, root", skillbox},
			command{"setpriv alone", asUser("/usr/bin/true")})
	}
	commands = append(commands,
		command{"bwrap, rootless", asUser(w.bwrap())},
		command{"runc run, rootless", asUser(fmt.Sprintf("runc --root %s/runc-rootless/state run --bundle %s/runc-rootless bench", w.dir, w.dir))},
		command{"skillbox exec, rootless", asUser(skillbox)})
	// Rounds over all commands, not one after the other: what else the machine does then hits all alike.
	const rounds = 4
	times := map[string][]float64{}
	for range rounds {
		for _, c := range commands {
			t, err := hyperfine(c.line, max(*runs/rounds, 2))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			times[c.name] = append(times[c.name], t...)
		}
	}
	for name, t := range times {
		f.Medians[name] = median(t)
	}
	return nil
}

// hyperfine times a command without a shell and returns the times of all runs in milliseconds.
func hyperfine(line string, runs int, more ...string) ([]float64, error) {
	file, err := os.CreateTemp("", "skillbox-bench-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	args := append([]string{"-N", "-w", "2", "-r", fmt.Sprint(runs), "--export-json", file.Name(), line}, more...)
	c := exec.Command("hyperfine", args...)
	if text, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", line, err, text)
	}
	var report struct{ Results []struct{ Times []float64 } }
	if err := json.NewDecoder(file).Decode(&report); err != nil {
		return nil, err
	}
	if len(report.Results) != 1 || len(report.Results[0].Times) == 0 {
		return nil, errors.New("hyperfine reported no times")
	}
	times := report.Results[0].Times
	for i := range times {
		times[i] *= 1000
	}
	return times, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// phases takes what skillbox itself measured.
func (w *work) phases(f *figures) error {
	times := map[string][]float64{}
	for range max(*runs/3, 5) {
		result, err := w.exec(w.empty)
		if err != nil {
			return err
		}
		for name, ms := range result.Phases {
			times[name] = append(times[name], ms)
		}
	}
	for name, t := range times {
		f.Phases[name] = median(t)
	}
	return nil
}

type result struct {
	Success    bool
	Verdict    string
	DurationMS float64 `json:"duration_ms"`
	Phases     map[string]float64
	Stdout     string
	Error      *struct{ Message string }
}

func (w *work) exec(bundle string, prefix ...string) (*result, error) {
	words := append(prefix, filepath.Join(w.bin, "skillbox"), "exec", "--json", bundle, "--", "true")
	out, err := exec.Command(words[0], words[1:]...).Output()
	if err != nil {
		return nil, fmt.Errorf("skillbox exec: %w: %s", err, out)
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// groups measures what a control group adds: the same run with version 2 where skillbox looks for it, and with nothing there.
func (w *work) groups(f *figures) error {
	if os.Getuid() != 0 {
		return nil
	}
	times := map[string][]float64{}
	for range *runs {
		for name, mount := range map[string]string{"without a group": "", "with a group": "mount -t cgroup2 cgroup2 /sys/fs/cgroup &&"} {
			script := `mount -t tmpfs tmpfs /sys/fs/cgroup && ` + mount + ` exec "$0" "$@"`
			r, err := w.exec(w.empty, "unshare", "--mount", "sh", "-c", script)
			if err != nil {
				return err
			}
			for _, phase := range []string{"prepare_ms", "run_ms", "group_ms"} {
				if ms, ok := r.Phases[phase]; ok {
					times[phase+", "+name] = append(times[phase+", "+name], ms)
				}
			}
		}
	}
	for name, t := range times {
		f.Phases[name] = median(t)
	}
	for _, phase := range []string{"prepare_ms", "run_ms"} {
		f.Phases[phase+", added by a group"] = f.Phases[phase+", with a group"] - f.Phases[phase+", without a group"]
	}
	return nil
}

// bundles measures what 10,000 files add to a run against one: the first time, and while nothing changed.
func (w *work) bundles(f *figures) error {
	small, large := filepath.Join(w.dir, "small"), filepath.Join(w.dir, "large")
	if err := errors.Join(fill(small, 1), fill(large, 10000)); err != nil {
		return err
	}
	times := map[string][]float64{}
	for i := range max(*runs/4, 5) {
		// A bundle that was never seen is one in a new directory.
		fresh := filepath.Join(w.dir, fmt.Sprintf("fresh%d", i))
		if err := fill(fresh, 10000); err != nil {
			return err
		}
		for _, b := range []struct{ name, dir string }{
			{"1 file", small}, {"10,000 files, unchanged", large}, {"10,000 files, first time", fresh},
		} {
			r, err := w.exec(b.dir)
			if err != nil {
				return err
			}
			times["run, "+b.name] = append(times["run, "+b.name], r.DurationMS)
			times["digest, "+b.name] = append(times["digest, "+b.name], r.Phases["digest_ms"])
		}
		if err := os.RemoveAll(fresh); err != nil {
			return err
		}
	}
	for what, t := range times {
		f.Phases[what] = median(t)
	}
	for _, state := range []string{"unchanged", "first time"} {
		f.Phases["added by 10,000 files, "+state] = f.Phases["run, 10,000 files, "+state] - f.Phases["run, 1 file"]
	}
	return nil
}

func fill(dir string, files int) error {
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%100))
		if i < 100 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		content := strings.Repeat(fmt.Sprintf("file %d\n", i), 64)
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d.txt", i)), []byte(content), 0o644); err != nil {
			return err
		}
	}
	time.Sleep(50 * time.Millisecond) // files younger than 20 ms are not cached
	return nil
}

func (f *figures) print() {
	fmt.Printf("machine: %s\n", f.Machine)
	if len(f.Medians) > 0 {
		fmt.Printf("\n%-28s %10s %12s\n", "one run of /usr/bin/true", "median ms", "to runc run")
	}
	for _, kind := range []string{"root", "rootless"} {
		runc := f.Medians["runc run, "+kind]
		for _, program := range []string{"bwrap", "runc run", "skillbox exec"} {
			name := program + ", " + kind
			if ms, ok := f.Medians[name]; ok {
				fmt.Printf("%-28s %10.2f %11.2fx\n", name, ms, ms/runc)
			}
		}
	}
	for _, name := range []string{"plain exec", "setpriv alone"} {
		if ms, ok := f.Medians[name]; ok {
			fmt.Printf("%-28s %10.2f\n", name, ms)
		}
	}
	if len(f.Phases) > 0 {
		fmt.Printf("\n%-40s %10s\n", "phases of skillbox exec", "median ms")
	}
	for _, name := range slices.Sorted(mapKeys(f.Phases)) {
		fmt.Printf("%-40s %10.2f\n", name, f.Phases[name])
	}
	printLines(f.Service)
	printLines(f.Preload)
	printLines(f.Skillware)
	printLines(f.Audit)
	printLines(f.Memory)
	printLines(f.CPU)
	printLines(f.Network)
	printLines(f.Images)
}

func mapKeys(m map[string]float64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
