package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// linked are the flags of the Makefile by which skillboxd is built: what does its work here is to be as large.
var linked = []string{"-trimpath", "-tags", "netgo,osusergo,runc_nocriu", "-ldflags", `-s -w -linkmode external -extldflags "-static"`}

// remembered and spent are what the program boxes answers, see there.
type (
	remembered struct {
		Boxes, Processes                        int
		Helper, HelperOwn, Own, Shared, Missing int64
		Kernel                                  map[string]int64
	}
	spent struct {
		Boxes                                         int
		Prepare, Run                                  struct{ User, System float64 }
		Tree, Network, Jail, Wall, Starting, InTheBox float64
	}
	boxed struct {
		Memory []remembered
		CPU    *spent
	}
)

// boxes prepares boxes as skillboxd does, where it can be looked at: a service keeps no more than a few dozen ready.
func (w *work) boxes(task map[string]any) (*boxed, error) {
	program := filepath.Join(w.bin, "boxes")
	if _, err := os.Stat(program); err != nil {
		c := exec.Command("go", append(append([]string{"build", "-o", program}, linked...), "./integration/bench/boxes")...)
		c.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build what prepares boxes: %w: %s", err, out)
		}
	}
	task["Bundle"] = w.empty
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	c := exec.Command(program)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(text), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("boxes: %w: %s", err, stderr.String())
	}
	var a boxed
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		return nil, fmt.Errorf("boxes: %w: %s", err, stdout.String())
	}
	return &a, nil
}

const mega = 1e6 // MB, as the bars have it

// memory measures what prepared boxes take: of the helper, of their own processes, and of the kernel.
func (w *work) memory(f *figures) error {
	r := &report{}
	defer func() { f.Memory = r.lines }()
	counts := []int{100, 1000}
	a, err := w.boxes(map[string]any{"Counts": counts})
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	none := a.Memory[0]
	for _, m := range a.Memory[1:] {
		n := float64(m.Boxes) * mega
		r.title("memory of %d prepared boxes, each of which then ran true; load %s", m.Boxes, load())
		r.line(float64(m.Own)/n, "MB", "a box: private memory of its %d process", m.Processes/m.Boxes)
		growth := float64(m.HelperOwn - none.HelperOwn)
		r.line(growth/n, "MB", "a box: what the helper has grown by")
		private := float64(m.Own)/n + growth/n
		r.limit(private, "MB", 2.5, "a box: private memory, both together")
		r.line(float64(m.Shared)/n, "MB", "a box: its share of pages that several have mapped (the program of init)")
		r.line(float64(m.Helper)/mega, "MB", "the helper, resident")
		if m.Boxes == counts[0] {
			r.bar("", "at most 40 MB", float64(m.Helper) <= 40*mega)
		}
		r.line(float64(m.HelperOwn)/mega, "MB", "  of that its own; the rest is the program's file")
		all := float64(m.Own+m.Shared+m.Helper) / mega
		for _, name := range []string{"Slab", "KernelStack", "PageTables", "Percpu", "Shmem"} {
			r.line(float64(m.Kernel[name])/n, "MB", "a box: the kernel's %s, by what the whole machine has more", name)
			all += float64(m.Kernel[name]) / mega
		}
		r.line(all, "MB", "all together: processes, helper, kernel")
		if m.Boxes == counts[1] {
			r.bar("", "works on a machine of 8 GiB: at most half of it", all <= 4<<30/mega)
		}
		r.line(float64(m.Missing)/mega, "MB", "for comparison: less memory available on the machine (MemAvailable), which others change too")
	}
	return nil
}
