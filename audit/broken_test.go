package audit

import (
	"bytes"
	"errors"
	"testing"
)

// Neither a record nor a checkpoint is written behind a line that does not belong there, such as one of a newer skillbox.
func TestNothingIsWrittenBehindABreak(t *testing.T) {
	for name, line := range map[string]string{
		"a kind that there is not": `{"v":1,"seq":7,"prev":"0000000000000000000000000000000000000000000000000000000000000000","time":"2026-11-22T09:00:00Z","mono":1,"kind":"new","host":"h","detail":{}}` + "\n",
		"no record":                "something\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/audit"
			l, err := Open(dir, quick)
			if err != nil {
				t.Fatal(err)
			}
			add(t, l, run("one")...)
			before := append(content(t, dir, segmentName(1)), line...)
			put(t, before, dir, segmentName(1))
			for what, try := range map[string]func() error{"checkpoint": l.Checkpoint, "append": func() error { return l.Append(run("two")...) }, "close": l.Close} {
				if err := try(); !errors.Is(err, ErrBroken) && !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if after := content(t, dir, segmentName(1)); !bytes.Equal(after, before) {
				t.Errorf("%s", after[min(len(before), len(after)):])
			}
		})
	}
}
