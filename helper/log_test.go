package helper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTwoWhoPutALogAsideLoseNoLine(t *testing.T) {
	path := t.TempDir()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for round := range 20 {
		if err := os.WriteFile(filepath.Join(path, ServiceLog), make([]byte, MaxLog), 0o600); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				log, err := OpenLog(dir)
				if err != nil {
					t.Error(err)
					return
				}
				defer log.Close()
				if _, err := fmt.Fprintf(log, "line %d\n", i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		text, err := os.ReadFile(filepath.Join(path, ServiceLog))
		if err != nil || strings.Count(string(text), "line ") != 8 {
			t.Fatalf("round %d: %v, %q", round, err, text)
		}
		info, err := os.Stat(filepath.Join(path, OldServiceLog))
		if err != nil || info.Size() != MaxLog {
			t.Fatalf("round %d: the old one: %v, %v", round, err, info)
		}
	}
}

func TestALogIsNoLink(t *testing.T) {
	path := t.TempDir()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(victim, filepath.Join(path, ServiceLog)); err != nil {
		t.Fatal(err)
	}
	if log, err := OpenLog(dir); err == nil {
		log.Close()
		t.Error("a link was followed")
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("a file was made behind a link")
	}
}

func TestWhereMetricsAreServed(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "unix": "unix", "127.0.0.1:9464": "127.0.0.1:9464", "[::1]:9464": "[::1]:9464", "127.9.9.9:1": "127.9.9.9:1",
		"exposed:0.0.0.0:9464": "0.0.0.0:9464", "exposed:192.0.2.1:9464": "192.0.2.1:9464", "exposed:127.0.0.1:9464": "127.0.0.1:9464",
	} {
		if got, err := metricsAt(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"1", "on", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464",
		"[::ffff:192.0.2.1]:9464", "exposed:", "exposed:unix", "exposed:exposed:127.0.0.1:1", "unix:/x",
	} {
		if got, err := metricsAt(text); err == nil {
			t.Errorf("%q is taken for %q", text, got)
		}
	}
}
