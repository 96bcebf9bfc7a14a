package audit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// growing is a segment that a writer goes on with each time that a reader has come to its end.
type growing struct {
	*os.File
	more [][]byte
}

func (g *growing) Read(p []byte) (int, error) {
	n, err := g.File.Read(p)
	if err == io.EOF && len(g.more) > 0 {
		f, err := os.OpenFile(g.Name(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return 0, err
		}
		_, err = f.Write(g.more[0])
		g.more = g.more[1:]
		if err := errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}
	return n, err
}

// A batch is one write, and a reader may find any part of it.
func TestALineThatIsBeingWrittenIsNoDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, quick)
	add(t, l, run("one")...)
	shut(t, l)
	before := whole(t, dir)
	signed := content(t, dir, segmentName(1))
	add(t, open(t, dir, quick), run("two")...)
	batch := content(t, dir, segmentName(1))[len(signed):]
	first := bytes.IndexByte(batch, '\n') + 1
	for _, at := range []int{1, first - 1, first + 1, len(batch) - 1} {
		for _, more := range [][][]byte{{batch[at:]}, {batch[at : at+1], batch[at+1:]}, {batch[at:], []byte(`{"v":1,"seq":`)}} {
			put(t, append(bytes.Clone(signed), batch[:at]...), dir, segmentName(1))
			d, err := openFolder(dir, true)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(filepath.Join(dir, segmentName(1)))
			if err != nil {
				t.Fatal(err)
			}
			v := &verifier{}
			if err := v.begin(d, VerifyOptions{}); err != nil {
				t.Fatal(err)
			}
			v.src = &lines{dir: d, file: f, r: bufio.NewReader(&growing{f, more}), at: line{segment: 1}}
			err = errors.Join(v.run(), v.src.close(), d.Close())
			if read := uint64(bytes.Count(batch[:at], []byte("\n"))); err != nil || v.Broken != nil || v.Last != before.Last+read || v.TornBytes == 0 {
				t.Errorf("%d of %d bytes were there: %v, %v, %d records", at, len(batch), v.Broken, err, v.Last)
			}
		}
	}
	put(t, append(signed, batch...), dir, segmentName(1))
}

func TestDamageIsBelievedOnceItWasSeenTwice(t *testing.T) {
	dir := small(t)
	good := content(t, dir, segmentName(2))
	first := bytes.IndexByte(good, '\n') + 1
	for _, c := range []struct {
		name  string
		seen  []string // of the newest segment, one look after the other
		looks int
		whole bool
	}{
		{"whole", []string{string(good)}, 1, true},
		{"taken back meanwhile", []string{string(good[:first]) + "rest of another batch\n", string(good)}, 2, true},
		{"damaged", []string{string(good[1:])}, 2, false},
		{"another damage each time", []string{"a\n", string(good[:first]) + "b\n", "c\n", string(good[:first]) + "d\n"}, 4, false},
	} {
		looks := 0
		r, err := settled(func() (Report, error) {
			put(t, []byte(c.seen[min(looks, len(c.seen)-1)]), dir, segmentName(2))
			looks++
			d, err := openFolder(dir, true)
			if err != nil {
				return Report{}, err
			}
			defer d.Close()
			return verify(d, VerifyOptions{})
		})
		if err != nil || r.Whole != c.whole || looks != c.looks {
			t.Errorf("%s: %v, %v after %d looks", c.name, r.Broken, err, looks)
		}
	}
}
