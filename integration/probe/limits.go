package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

var _ = register(map[string]func([]string) (any, error){
	"limit-threads":  limitThreads,
	"limit-spin":     limitSpin,
	"limit-unwaited": limitUnwaited,
	"limit-flood":    limitFlood,
})

// limitThreads starts args[0] threads one after the other, two milliseconds apart, that then do nothing.
func limitThreads(args []string) (any, error) {
	var n int
	if err := numbers(args, &n); err != nil {
		return nil, err
	}
	for range n {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(10 * time.Second)
	return "outlived", nil
}

// limitSpin keeps args[0] threads busy for ever and says, in a line each, how many milliseconds of processor time it has used.
func limitSpin(args []string) (any, error) {
	var threads int
	if err := numbers(args, &threads); err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			for spun := 0; ; spun++ {
			}
		}()
	}
	for {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			return nil, err
		}
		fmt.Println((usage.Utime.Nano() + usage.Stime.Nano()) / 1e6)
		time.Sleep(20 * time.Millisecond)
	}
}

// limitUnwaited uses processor time in children, one after the other, that nobody waits for: their parent ignores SIGCHLD, and then
// learns nothing of their time (wait(2)). Each lives for args[0] milliseconds, all together for args[1].
func limitUnwaited(args []string) (any, error) {
	var each, all int
	if err := numbers(args, &each, &all); err != nil {
		return nil, err
	}
	if each == 0 {
		for end := time.Now().Add(time.Duration(all) * time.Millisecond); time.Now().Before(end); {
		}
		return nil, nil
	}
	signal.Ignore(unix.SIGCHLD)
	for end := time.Now().Add(time.Duration(all) * time.Millisecond); time.Now().Before(end); {
		p, err := os.StartProcess("/proc/self/exe", []string{"probe", "limit-unwaited", "0", strconv.Itoa(each)}, &os.ProcAttr{Env: []string{"GOMAXPROCS=1"}})
		if err != nil {
			return nil, err
		}
		// ECHILD, once it has ended: the kernel has taken it away.
		_, _ = p.Wait()
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return nil, err
	}
	return map[string]string{"known": time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).String()}, nil
}

// limitFlood writes args[0] MiB to stdout and as much to stderr, in turns, and ends with the exit code args[1].
func limitFlood(args []string) (any, error) {
	var most, code int
	if err := numbers(args, &most, &code); err != nil {
		return nil, err
	}
	block := bytes.Repeat([]byte("01234567890123\r\n"), 1<<20/16)
	for range most {
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			if _, err := f.Write(block); err != nil {
				return nil, err
			}
		}
	}
	os.Exit(code)
	return nil, nil
}
