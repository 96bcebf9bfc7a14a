package observe

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is what the kernel says of a thread's process.
type process struct {
	group  int // its pid, here
	pid    int // its pid, in the box
	parent int // its parent's pid, here
	umask  uint32
}

// look reads a thread's status.
func look(thread int) (process, error) {
	text, err := status(thread)
	if err != nil {
		return process{}, err
	}
	p := process{}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "Umask":
			mask, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 8, 32)
			if err != nil {
				return p, fmt.Errorf("observe: umask: %w", err)
			}
			p.umask = uint32(mask)
		case "Tgid":
			p.group = first(value)
		case "PPid":
			p.parent = first(value)
		case "NStgid":
			p.pid = last(value)
			return p, nil // the rest is of no interest
		}
	}
	return p, errors.New("observe: a status without NStgid")
}

// insideOf is the pid in its own namespace of a process that is known by its pid here, or 0.
func insideOf(pid int) int {
	p, err := look(pid)
	if err != nil {
		return 0
	}
	return p.pid
}

// status reads no more than is needed: a buffer's worth, without what os.ReadFile does besides.
func status(thread int) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(thread)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var buffer [4096]byte
	n, err := unix.Read(fd, buffer[:])
	if err != nil {
		return nil, err
	}
	return buffer[:n], nil
}

func first(value []byte) int {
	fields := bytes.Fields(value)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(string(fields[0])) // the kernel's number
	return n
}

func last(value []byte) int {
	fields := bytes.Fields(value)
	if len(fields) == 0 {
		return 0
	}
	return first(fields[len(fields)-1])
}

const pageSize = 4096 // no page is smaller

// readMemory fills a buffer from a process's memory, as far as that is there.
func readMemory(pid int, at uint64, buffer []byte) (int, error) {
	total := 0
	for total < len(buffer) {
		// One page at a time: a read that meets a hole in the middle gives nothing.
		size := min(len(buffer)-total, int(pageSize-(at+uint64(total))%pageSize))
		local := []unix.Iovec{{Base: &buffer[total]}}
		local[0].SetLen(size)
		n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at + uint64(total)), Len: size}}, 0)
		if err != nil || n == 0 {
			if total > 0 {
				return total, nil
			}
			return 0, err
		}
		total += n
	}
	return total, nil
}

// readText reads a C string of at most limit bytes: ENAMETOOLONG where it is longer, EFAULT where it ends in memory that is not there.
func readText(pid int, at uint64, limit int) (text string, errno unix.Errno) {
	var all []byte
	for len(all) < limit {
		chunk := make([]byte, min(256, limit-len(all), int(pageSize-(at+uint64(len(all)))%pageSize)))
		n, err := readMemory(pid, at+uint64(len(all)), chunk)
		if err != nil || n == 0 {
			return string(all), unix.EFAULT
		}
		if end := bytes.IndexByte(chunk[:n], 0); end >= 0 {
			return string(append(all, chunk[:end]...)), 0
		}
		all = append(all, chunk[:n]...)
	}
	return string(all), unix.ENAMETOOLONG
}
