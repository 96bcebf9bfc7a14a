package gateway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

func TestTheSinkAnswersEachRequestWhateverItsBody(t *testing.T) {
	body := strings.Repeat("x", 1<<20)
	text := fmt.Sprintf("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%sGET /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", len(body), body)
	var out strings.Builder
	if err := serveHTTP(bufio.NewReader(strings.NewReader(text)), &out); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if strings.Count(out.String(), "HTTP/1.1 200 OK") != 2 || strings.Count(out.String(), "100 Continue") != 1 {
		t.Errorf("%q", out.String())
	}
}

// The memory for a head is the helper's, which no limit of the box holds.
func TestTheSinkHoldsNoEndlessHead(t *testing.T) {
	for name, line := range map[string]string{"fields": "xaaaa: b\r\n", "one field": "a"} {
		endless := io.MultiReader(strings.NewReader("GET / HTTP/1.1\r\nHost: h\r\nx: "), io.LimitReader(&repeated{text: line}, 8<<20))
		var before, after runtime.MemStats
		var out strings.Builder
		runtime.ReadMemStats(&before)
		err := serveHTTP(bufio.NewReader(endless), &out)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || out.Len() > 0 || took > 4<<20 {
			t.Errorf("%s: %v, %q; 8 MiB of a head took %d bytes", name, err, out.String(), took)
		}
		if n, err := endless.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: what followed was left: %d, %v", name, n, err)
		}
	}
}

// repeated is a text without end.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.at]
		r.at = (r.at + 1) % len(r.text)
	}
	return len(p), nil
}
