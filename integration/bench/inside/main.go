// Inside is what the benches of the network and of the audit log run within a box, and beside it: it reads tasks from stdin, a JSON value each, and answers
// each with the times that every single attempt took. Its sockets block in the kernel, so that no scheduler of its own is measured.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// task is one measurement.
type task struct {
	Do    string         // see attempts
	To    netip.AddrPort // IPv4
	Names []string       // to ask for, one after the other
	Times int            // that it is done; for names, that all of them are asked for
}

type answer struct {
	Micros []float64 `json:"micros"`
	Error  string    `json:"error,omitempty"`
}

var attempts = map[string]func(t task) ([]float64, error){
	"connect": timed(func(to netip.AddrPort) error { return connect(to, nil, nil) }),
	"answer":  timed(func(to netip.AddrPort) error { return connect(to, readByte, nil) }),
	"refused": timed(func(to netip.AddrPort) error { return connect(to, nil, unix.ECONNREFUSED) }),
	"resolve": resolve,
	"stat":    repeated(stat),
	"open":    repeated(openFile),
}

func main() {
	runtime.LockOSThread()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var t task
		err := in.Decode(&t)
		if errors.Is(err, io.EOF) {
			return
		}
		var a answer
		if err == nil {
			a, err = perform(t), nil
		}
		if err = errors.Join(err, out.Encode(a)); err != nil {
			fmt.Fprintln(os.Stderr, "inside:", err)
			os.Exit(1)
		}
	}
}

func perform(t task) (a answer) {
	do, err := attempts[t.Do], error(nil)
	if do == nil {
		err = fmt.Errorf("no such attempt: %q", t.Do)
	} else {
		a.Micros, err = do(t)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// pause is between connections: the far end of one that was closed still has work to do, which is not the next one's.
const pause = time.Millisecond

func timed(once func(netip.AddrPort) error) func(t task) ([]float64, error) {
	return func(t task) (times []float64, err error) {
		for range t.Times {
			began := time.Now()
			err := once(t.To)
			times = append(times, micros(began))
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", t.Do, t.To, err)
			}
			time.Sleep(pause)
		}
		return times, nil
	}
}

func micros(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1000 }

// connect makes a connection, uses and closes it, and checks how it went.
func connect(to netip.AddrPort, use func(fd int) error, want error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	if err == nil && use != nil {
		err = use(fd)
	}
	if errClose := unix.Close(fd); errClose != nil {
		return errClose
	}
	if err == want {
		return nil
	}
	return fmt.Errorf("it went otherwise than it should: %w", errors.Join(err, want))
}

// readByte waits for what the server says first.
func readByte(fd int) error {
	n, err := read(fd, make([]byte, 1))
	if err == nil && n != 1 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// read goes on after the signals by which the Go runtime interrupts threads.
func read(fd int, data []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, data); err != unix.EINTR {
			return n, err
		}
	}
}

// resolve asks for the address of each name, from one socket.
func resolve(t task) (times []float64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}),
		unix.Connect(fd, &unix.SockaddrInet4{Port: int(t.To.Port()), Addr: t.To.Addr().As4()}))
	if err != nil {
		return nil, err
	}
	got := make([]byte, 4096)
	for i := range t.Times {
		for _, name := range t.Names {
			q, err := question(name, uint16(i))
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if _, err = unix.Write(fd, q); err != nil {
				return nil, fmt.Errorf("ask %s: %w", t.To, err)
			}
			n, err := read(fd, got)
			times = append(times, micros(began))
			if err == nil {
				err = check(got[:n], uint16(i))
			}
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", name, t.To, err)
			}
		}
	}
	return times, nil
}

func question(name string, id uint16) ([]byte, error) {
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	return q.Pack()
}

func check(wire []byte, id uint16) error {
	var m dnsmessage.Message
	if err := m.Unpack(wire); err != nil {
		return err
	}
	if m.ID != id || m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 {
		return fmt.Errorf("not the answer that it should be: %s with %d addresses", m.RCode, len(m.Answers))
	}
	return nil
}
