//go:build linux

package scan

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/audit"
)

func TestARunThatIsNotWhollyRecordedIsNone(t *testing.T) {
	started := audit.Record{Event: audit.Event{Detail: audit.Started{Command: []string{"python3", "main.py"}}}}
	ended := func(dropped uint64) audit.Record {
		return audit.Record{Event: audit.Event{Detail: audit.Ended{Verdict: "exited", Dropped: dropped}}}
	}
	for name, c := range map[string]struct {
		events  []audit.Record
		dropped uint64
		want    string
	}{
		"whole":        {[]audit.Record{started, ended(0)}, 0, ""},
		"without end":  {[]audit.Record{started}, 0, "has no end"},
		"with dropped": {[]audit.Record{started, ended(3)}, 3, ""},
	} {
		r := Run{ID: "r", Events: c.events}
		err := r.complete()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if r.Dropped != c.dropped {
			t.Errorf("%s: %d dropped, want %d", name, r.Dropped, c.dropped)
		}
		if strings.Join(r.Command, " ") != "python3 main.py" {
			t.Errorf("%s: command %q", name, r.Command)
		}
	}
}

func TestPlacesThatWereLeftAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := filepath.Join(os.TempDir(), placeName+"left")
	do(t, os.MkdirAll(filepath.Join(left, "world-0/home/closed"), 0o700), os.Chmod(filepath.Join(left, "world-0/home/closed"), 0))
	other := filepath.Join(os.TempDir(), placeName+"file")
	do(t, os.WriteFile(other, nil, 0o600), os.Symlink("/etc", filepath.Join(os.TempDir(), placeName+"link")))
	first, err := NewPlace()
	do(t, err)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", left, err)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("a file is no place: %v", err)
	}
	second, err := NewPlace()
	do(t, err)
	if _, err := os.Lstat(first.dir); err != nil {
		t.Errorf("a place in which somebody works was swept: %v", err)
	}
	do(t, first.Close(), second.Close())
	if _, err := os.Lstat(first.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was left: %v", first.dir, err)
	}
}
