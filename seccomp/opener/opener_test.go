package opener

import (
	"strings"
	"testing"
)

func TestAFrameIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []Reply{{}, {Errno: 2}, {Elsewhere: true}, {Path: "/a"}, {To: "/b"}, {Path: "/a", To: "/b"}, {Path: strings.Repeat("a", MaxPath+255), To: strings.Repeat("b", MaxPath+255)}} {
		b := r.encode()
		var got Reply
		if err := got.decode(b); err != nil || got != r {
			t.Errorf("%.100v: %.100v, %v", r, got, err)
		}
		if len(b) > maxReply {
			t.Errorf("%d bytes, not %d", len(b), maxReply)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 8), {0, 0, 0, 0, 1, 0, 0, 0, 0}, {0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0}} {
		if new(Reply).decode(b) == nil {
			t.Errorf("%v is a reply", b)
		}
	}
}
