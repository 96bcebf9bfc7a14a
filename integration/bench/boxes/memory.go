//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"skillbox/sandbox"
)

// memory is what so many ready boxes take, in bytes.
type memory struct {
	Boxes int
	// Helper is this process's: resident, and of that its own (RssAnon of proc_pid_status(5)); the rest is the program itself.
	Helper, HelperOwn int64
	// Own and Shared are the boxes' processes' together, by smaps_rollup of proc_pid_smaps(5): pages that nobody else has mapped, and their
	// part (Pss) of those that several have, which is the program's.
	Own, Shared int64
	Processes   int
	// Kernel is by what the machine has more than before the first box, by the names of proc_meminfo(5). It is the whole machine's.
	Kernel map[string]int64
	// Missing is by how much less memory is available on the machine than before the first box.
	Missing int64
}

// kernel are those parts of /proc/meminfo that boxes take and no process has mapped; Shmem is their files in memory, skillbox-init's copies and
// what lies in /etc among them.
var kernel = []string{"Slab", "KernelStack", "PageTables", "Percpu", "Shmem"}

// remember prepares boxes and looks at each of counts. Then each of them runs a program.
func remember(h *sandbox.Host, plan *sandbox.Plan, counts []int) (all []memory, err error) {
	var boxes []*sandbox.Box
	defer func() {
		for _, b := range boxes {
			err = errors.Join(err, b.Close())
		}
	}()
	// The first box makes what all share.
	first, err := prepare(h, plan)
	if err == nil {
		err = call(first)
	}
	settle()
	before, errMeminfo := meminfo()
	if err = errors.Join(err, errMeminfo); err != nil {
		return nil, err
	}
	for _, n := range append([]int{0}, counts...) {
		for len(boxes) < n {
			b, err := prepare(h, plan)
			if err != nil {
				return nil, fmt.Errorf("box %d: %w", len(boxes)+1, err)
			}
			boxes = append(boxes, b)
		}
		settle()
		m, err := look(before)
		if err != nil {
			return nil, err
		}
		m.Boxes = n
		all = append(all, *m)
	}
	for len(boxes) > 0 {
		b := boxes[0]
		boxes = boxes[1:]
		if err := call(b); err != nil {
			return nil, fmt.Errorf("%d boxes before the last: %w", len(boxes), err)
		}
	}
	return all, nil
}

func look(before map[string]int64) (*memory, error) {
	now, err := meminfo()
	if err != nil {
		return nil, err
	}
	m := &memory{Kernel: map[string]int64{}, Missing: before["MemAvailable"] - now["MemAvailable"]}
	for _, name := range kernel {
		m.Kernel[name] = now[name] - before[name]
	}
	own, err := kibibytes("/proc/self/status")
	if err != nil {
		return nil, err
	}
	m.Helper, m.HelperOwn = own["VmRSS"], own["RssAnon"]
	// All processes here but this one are boxes'.
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		maps, err := kibibytes("/proc/" + name.Name() + "/smaps_rollup")
		if err != nil {
			return nil, err
		}
		m.Processes++
		private := maps["Private_Clean"] + maps["Private_Dirty"]
		m.Own += private
		m.Shared += maps["Pss"] - private
	}
	return m, nil
}

func meminfo() (map[string]int64, error) { return kibibytes("/proc/meminfo") }

// kibibytes reads lines such as "Pss: 12 kB", in bytes.
func kibibytes(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if words := strings.Fields(rest); len(words) == 2 && words[1] == "kB" {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				values[name] = n << 10
			}
		}
	}
	return values, nil
}
