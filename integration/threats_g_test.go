//go:build linux

package integration

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// hashes describes every file below the paths: type, mode and content.
func hashes(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, p := range paths {
		err := filepath.WalkDir(p, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			all[path] = info.Mode().String()
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum := sha256.Sum256(data)
				all[path] += " " + info.ModTime().String() + " " + string(sum[:])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func unsafePointer(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }
