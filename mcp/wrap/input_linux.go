package wrap

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchable returns an input whose end poll(2) tells of: a pipe or a socket is one as it is, anything else is copied into a pipe.
func watchable(stdin *os.File) (in *os.File, done func(), err error) {
	info, err := stdin.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("stdin: %w", err)
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
		return stdin, func() {}, nil
	}
	in, write, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("stdin: %w", err)
	}
	go func() {
		_, _ = io.Copy(write, stdin) // what cannot be read has ended
		write.Close()
	}()
	return in, func() { in.Close() }, nil
}

// afterInput calls end when the input has ended and the time after that is over. Bytes that nobody has read yet may still lie in it then: what
// looks is not who reads. stop waits until nothing looks any more.
func afterInput(in *os.File, wait time.Duration, end func()) (stop func()) {
	fd := int32(in.Fd())
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		end() // without descriptors nothing can be run either
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// POLLHUP is reported whether or not it is asked for; a socket's peer may have shut down one direction only.
		if !poll(unix.PollFd{Fd: fd, Events: unix.POLLRDHUP}, wake, -1) && !poll(unix.PollFd{Fd: -1}, wake, int(wait.Milliseconds())) {
			end()
		}
	}()
	return func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd takes the first
		<-done
		unix.Close(wake)
	}
}

// poll waits for a descriptor, or for as many milliseconds; -1 is for ever. It says whether wake was written meanwhile.
func poll(fd unix.PollFd, wake, timeout int) (woken bool) {
	fds := []unix.PollFd{fd, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, timeout)
		if err == unix.EINTR {
			continue // the time begins anew: Go's signals come seldom enough
		}
		return err != nil || fds[1].Revents != 0
	}
}
