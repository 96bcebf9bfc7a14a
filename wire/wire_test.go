package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// peers returns a Conn and the bare socket of its peer, which the test closes.
func peers(t testing.TB) (*Conn, int) {
	t.Helper()
	conn, fd := unclosed(t)
	t.Cleanup(func() { conn.Close() })
	return conn, fd
}

func unclosed(t testing.TB) (*Conn, int) {
	t.Helper()
	conn, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	return conn, fd
}

func frame(length uint32, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(magic), length), body...)
}

// sendRaw writes bytes with n copies of a pipe's write end. The returned read end is at its end when nobody holds a copy any more.
func sendRaw(t testing.TB, fd int, data []byte, n int) (reader *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	rights := make([]int, n)
	for i := range rights {
		rights[i] = int(w.Fd())
	}
	var oob []byte
	if n > 0 {
		oob = unix.UnixRights(rights...)
	}
	sent, err := unix.SendmsgN(fd, data, oob, nil, unix.MSG_NOSIGNAL)
	if err != nil || sent != len(data) {
		t.Fatalf("sent %d of %d bytes: %v", sent, len(data), err)
	}
	return r
}

// released fails the test if somebody still holds a descriptor that was sent.
func released(t testing.TB, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("a descriptor was left behind: read %d, %v", n, err)
	}
}

func TestAMessageArrivesWithItsDescriptors(t *testing.T) {
	conn, fd := peers(t)
	peer := FromFD(fd)
	defer peer.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := conn.Send(map[string]string{"a": "<b>"}, int(w.Fd()), int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := conn.Send("second"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got map[string]string
	files, err := peer.Receive(&got)
	if err != nil || len(files) != 2 || got["a"] != "<b>" {
		t.Fatalf("got %v, %v, %v", got, files, err)
	}
	for _, f := range files {
		if flags, err := unix.FcntlInt(uintptr(f), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d is inherited by children: %v", f, err)
		}
	}
	CloseAll(files)
	released(t, r)
	var text string
	if files, err := peer.Receive(&text); err != nil || text != "second" || len(files) != 0 {
		t.Errorf("got %q, %v, %v", text, files, err)
	}
}

func TestALargeMessageArrives(t *testing.T) {
	conn, fd := peers(t)
	peer := FromFD(fd)
	defer peer.Close()
	want := strings.Repeat("<", MaxFrame-2) // not six times as long for HTML's sake
	sent := make(chan error, 1)
	go func() { sent <- conn.Send(want) }()
	var got string
	if _, err := peer.Receive(&got); err != nil || got != want {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestWhatIsAboveTheBoundsIsNotSent(t *testing.T) {
	conn, fd := peers(t)
	defer unix.Close(fd)
	if err := conn.Send(strings.Repeat("x", MaxFrame-1)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a message above MaxFrame: %v", err)
	}
	if err := conn.Send("x", make([]int, MaxFiles+1)...); !errors.Is(err, ErrProtocol) {
		t.Errorf("descriptors above MaxFiles: %v", err)
	}
	if err := conn.Send(func() {}); err == nil {
		t.Error("a function was encoded")
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 0 {
		t.Errorf("something was sent all the same: %v", err)
	}
}

func TestAReaderRefusesAndClosesWhatItGot(t *testing.T) {
	full := frame(4, `"ok"`)
	for name, c := range map[string]struct {
		data  []byte
		files int
	}{
		"a wrong magic":             {[]byte("SKB0\x00\x00\x00\x02\"\""), 1},
		"a frame above the limit":   {frame(MaxFrame+1, `""`), 1},
		"the largest length":        {frame(1<<32-1, `""`), 1},
		"a header cut short":        {full[:5], 1},
		"one byte":                  {full[:1], 1},
		"a body cut short":          {full[:10], 1},
		"no body":                   {full[:8], 1},
		"an empty body":             {frame(0, ""), 1},
		"a body that is not JSON":   {frame(3, "{a}"), 1},
		"two values":                {frame(5, `1 "a"`), 1},
		"a value of another type":   {frame(2, `[]`), 1},
		"more descriptors than fit": {full, MaxFiles + 1},
		"as many as the kernel has": {full, 253},
	} {
		t.Run(name, func(t *testing.T) {
			conn, fd := peers(t)
			r := sendRaw(t, fd, c.data, c.files)
			unix.Close(fd)
			var got string
			files, err := conn.Receive(&got)
			if !errors.Is(err, ErrProtocol) || len(files) != 0 {
				t.Errorf("got %q, %v, %v", got, files, err)
			}
			released(t, r)
		})
	}
}

func TestDescriptorsInsideABodyAreDropped(t *testing.T) {
	conn, fd := peers(t)
	defer unix.Close(fd)
	sendRaw(t, fd, frame(4, ""), 0)
	r := sendRaw(t, fd, []byte(`"ok"`), 3)
	var got string
	files, err := conn.Receive(&got)
	if err != nil || got != "ok" || len(files) != 0 {
		t.Errorf("got %q, %v, %v", got, files, err)
	}
	released(t, r)
}

func TestTheEndOfAStreamIsEOF(t *testing.T) {
	conn, fd := peers(t)
	unix.Close(fd)
	if _, err := conn.Receive(new(string)); !errors.Is(err, io.EOF) || errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
	if err := conn.Send("x"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sending to nobody: %v", err)
	}
}

func TestShutdownWakesAReceiver(t *testing.T) {
	conn, fd := peers(t)
	defer unix.Close(fd)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Receive(new(string))
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := conn.Shutdown(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Receive still waits")
	}
}
