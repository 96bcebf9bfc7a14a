package rootfs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mkdirs(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// sourceAt describes a path as the policy's check does.
func sourceAt(t *testing.T, path string) Source {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	s, err := SourceOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exchange(t *testing.T, a, b string) {
	t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Error(err)
	}
}

func TestThreat13BindSourceSwap(t *testing.T) {
	dir := t.TempDir()
	meant := filepath.Join(dir, "project/data")
	private := filepath.Join(dir, "private/data")
	mkdirs(t, meant, private, filepath.Join(dir, "elsewhere"))
	if err := os.Symlink(private, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "private"), filepath.Join(dir, "parent")); err != nil {
		t.Fatal(err)
	}
	source := sourceAt(t, meant)
	for _, swap := range []struct{ what, a, b string }{
		{"a link in the place of the directory", meant, filepath.Join(dir, "link")},
		{"a link in the place of its parent", filepath.Join(dir, "project"), filepath.Join(dir, "parent")},
		{"another directory", meant, private},
		{"another parent", filepath.Join(dir, "project"), filepath.Join(dir, "private")},
	} {
		exchange(t, swap.a, swap.b)
		if fd, err := openSource(source); err == nil {
			unix.Close(fd)
			t.Errorf("%s is opened", swap.what)
		}
		exchange(t, swap.a, swap.b)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					exchange(t, swap.a, swap.b)
				}
			}
		}()
		opened := 0
		for range 1000 {
			fd, err := openSource(source)
			if err != nil {
				continue
			}
			opened++
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || st.Ino != source.Ino || st.Mode&unix.S_IFMT != unix.S_IFDIR {
				t.Errorf("%s: opened inode %d, meant %d: %v", swap.what, st.Ino, source.Ino, err)
			}
			unix.Close(fd)
		}
		close(stop)
		<-stopped
		if opened == 0 || opened == 1000 {
			t.Logf("%s: opened %d times of 1000: there was no race", swap.what, opened)
		}
		if _, err := os.Lstat(meant); err != nil || sourceAt(t, meant).Ino != source.Ino {
			exchange(t, swap.a, swap.b)
		}
	}
}

// A link is no source either: it would be mounted as a link, and lead the box somewhere else than was checked.
func TestThreat13ALinkIsNoSource(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(link, &st); err != nil {
		t.Fatal(err)
	}
	if fd, err := openSource(Source{Path: link, Dev: st.Dev, Ino: st.Ino}); err == nil {
		unix.Close(fd)
		t.Error("a symbolic link is opened as itself")
	}
}

// The mask over secret files is /dev/null: CVE-2025-31133 is a runtime that bound what it found there.
func TestThreat6DevnullMaskSwap(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("putting another /dev in place needs a mount namespace; run as root")
	}
	problems := make(chan []string)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its mount namespace
		problems <- hostileDev(t.TempDir())
	}()
	for _, p := range <-problems {
		t.Error(p)
	}
}

// hostileDev tries mountDevice in a mount namespace whose /dev an attacker has made.
func hostileDev(target string) (problems []string) {
	steps := []func() error{
		func() error { return unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("x", target, "tmpfs", 0, "") },
		func() error { return unix.Mount("x", "/dev", "tmpfs", 0, "") },
		func() error { return unix.Symlink("/proc/sys/kernel/core_pattern", "/dev/null") },
		func() error { return unix.Mknod("/dev/zero", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))) }, // /dev/mem
		func() error { return unix.Mknod("/dev/full", unix.S_IFBLK|0o666, int(unix.Mkdev(1, 7))) },
		func() error { return unix.Mkdir("/dev/random", 0o755) },
		func() error { return os.WriteFile("/dev/urandom", []byte("x"), 0o666) },
		func() error { return unix.Mknod("/dev/tty", unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return []string{err.Error()}
		}
	}
	dir, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return []string{err.Error()}
	}
	defer unix.Close(dir)
	for _, d := range devices {
		err := mountDevice(dir, d.name, d.major, d.minor)
		if d.name == "tty" && err != nil { // the only true one
			problems = append(problems, err.Error())
		}
		if d.name != "tty" && (err == nil || !strings.Contains(err.Error(), "is not character device")) {
			problems = append(problems, "/dev/"+d.name+" was taken: "+errorText(err))
		}
		if _, err := os.Lstat(filepath.Join(target, d.name)); d.name != "tty" && err == nil {
			problems = append(problems, "/dev/"+d.name+" was made")
		}
	}
	return problems
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
