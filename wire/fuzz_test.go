package wire

import (
	"encoding/json"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever a peer writes, and however many descriptors it attaches where: Receive does not panic, keeps no descriptor that it did
// not hand out, and its buffers stay within MaxFrame.
func FuzzReceive(f *testing.F) {
	f.Add(frame(4, `"ok"`), uint8(0), uint16(12))
	f.Add(frame(4, `"ok"`), uint8(3), uint16(12))
	f.Add(frame(4, `"ok"`), uint8(3), uint16(4))
	f.Add(append(frame(2, `{}`), frame(2, `[]`)...), uint8(1), uint16(10))
	f.Add(frame(MaxFrame+1, ``), uint8(1), uint16(8))
	f.Add(frame(1<<32-1, `{"a":1}`), uint8(200), uint16(3))
	f.Add(frame(9, `{"a":[[[`), uint8(2), uint16(1))
	f.Add([]byte("SKB1\x00\x00\x00\x04\"okB1"), uint8(123), uint16(12))
	f.Add([]byte("SKB"), uint8(253), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, files uint8, at uint16) {
		if len(data) > 64<<10 || files > 253 {
			t.Skip("more than one message to the kernel")
		}
		conn, fd := unclosed(t)
		// The descriptors come with the bytes from at on.
		at = min(at, uint16(len(data)))
		if at > 0 {
			sendRaw(t, fd, data[:at], 0)
		}
		held := sendRaw(t, fd, append([]byte{}, data[at:]...), int(files)*min(1, len(data[at:])))
		unix.Close(fd)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for {
			var value json.RawMessage
			received, err := conn.Receive(&value)
			if len(received) > MaxFiles || (err != nil && len(received) > 0) {
				t.Errorf("%d descriptors with error %v", len(received), err)
			}
			CloseAll(received)
			if err != nil {
				break
			}
			if !json.Valid(value) {
				t.Errorf("not JSON: %q", value)
			}
		}
		runtime.ReadMemStats(&after)
		// Each message may take its own length and a copy, the last one MaxFrame.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > MaxFrame+1<<20 {
			t.Errorf("%d bytes were allocated for %d", grown, len(data))
		}
		conn.Close() // what was not received dies with the socket
		released(t, held)
	})
}
