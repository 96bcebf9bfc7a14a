package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ownMounts gives the calling goroutine's thread a mount namespace of its own; the thread ends with the goroutine.
func ownMounts(tb testing.TB) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("needs root: an ordinary user's mount namespace needs a process of its own (see the integration tests)")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		tb.Fatal(err)
	}
}

// testSpec is a tree with the test binary in init's place.
func testSpec(tb testing.TB, bundle string) *Spec {
	tb.Helper()
	init, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return &Spec{
		Base: "host", Bundle: Bind{Source: sourceOf(tb, bundle), Path: SkillDir}, TmpSize: 1 << 20, HomeSize: 1 << 20, OutputSize: 1 << 20,
		ResultSize: 1 << 20, Init: init, InitPath: ShimDir + "/init", Hostname: "test",
	}
}

func sourceOf(tb testing.TB, path string) Source {
	tb.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer unix.Close(fd)
	s, err := SourceOf(fd)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// BenchmarkCreate shows that mounting does not depend on the number of files in the bundle.
func BenchmarkCreate(b *testing.B) {
	for _, files := range []int{1, 10000} {
		b.Run(fmt.Sprintf("%d files", files), func(b *testing.B) {
			ownMounts(b)
			bundle := b.TempDir()
			for i := range files {
				if err := os.WriteFile(filepath.Join(bundle, fmt.Sprintf("f%d", i)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			spec := testSpec(b, bundle)
			dir := b.TempDir()
			for b.Loop() {
				tree, err := Create(dir, spec)
				if err != nil {
					b.Fatal(err)
				}
				if err := tree.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
