package metrics

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// process is the calling process.
type process struct {
	helper.Process
	virtual int64   // bytes
	started float64 // seconds since 1970
}

// lookAtProcess reads what the kernel tells of the calling process (proc_pid_stat(5)).
func lookAtProcess() (*process, error) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	// The name, which is in parentheses, may hold anything; field 3 follows it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 22 {
		return nil, fmt.Errorf("metrics: /proc/self/stat has %d fields", len(fields))
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64) // the kernel wrote it
		return n
	}
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("metrics: limit of descriptors: %w", err)
	}
	const ticks = 100 // USER_HZ, the same on every architecture that Go knows
	return &process{
		Process: helper.Process{
			ResidentBytes: number(24) * int64(os.Getpagesize()), Descriptors: len(files) - 1, MaxDescriptors: int64(min(limit.Cur, 1<<62)),
			Threads: int(number(20)), Goroutines: runtime.NumGoroutine(), CPUSeconds: float64(number(14)+number(15)) / ticks,
		},
		virtual: number(23), started: boot + float64(number(22))/ticks,
	}, nil
}

// bootTime is in seconds since 1970.
var bootTime = sync.OnceValues(func() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\nbtime ")
	line, _, _ := strings.Cut(rest, "\n")
	boot, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return 0, fmt.Errorf("metrics: the time of boot: %w", err)
	}
	return boot, nil
})
