package bundle

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hangingMount mounts a FUSE file system whose server answers until a directory is to be listed, and then never again.
// The protocol is that of <linux/fuse.h>: requests begin with length, opcode, unique; answers with length, error, unique.
func hangingMount(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting FUSE without fusermount needs root")
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("/dev/fuse: %v", err)
	}
	at := t.TempDir()
	if err := unix.Mount("hang", at, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev)); err != nil {
		unix.Close(dev)
		t.Skipf("mount fuse: %v", err)
	}
	t.Cleanup(func() {
		unix.Unmount(at, unix.MNT_DETACH)
		unix.Close(dev) // ends the connection and with it every call that hangs
	})
	go serve(dev)
	return open(t, at)
}

func serve(dev int) {
	const opInit, opOpendir = 26, 27
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(dev, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		var body []byte
		switch binary.NativeEndian.Uint32(buf[4:]) {
		case opInit:
			body = make([]byte, 64)
			binary.NativeEndian.PutUint32(body[0:], 7)
			binary.NativeEndian.PutUint32(body[4:], 31)
			binary.NativeEndian.PutUint32(body[20:], 4096) // max_write
		case opOpendir:
			body = make([]byte, 16)
		default:
			continue
		}
		out := make([]byte, 16, 16+len(body))
		binary.NativeEndian.PutUint32(out[0:], uint32(16+len(body)))
		copy(out[8:], buf[8:16])
		unix.Write(dev, append(out, body...))
	}
}

func TestThreat121FuseHang(t *testing.T) {
	dir := hangingMount(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Digest(ctx, dir, Limits{}, OpenCache(t.TempDir()))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("returned after %v", d)
	}
}
