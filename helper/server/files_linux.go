package server

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/rootfs"
)

// files are a request's descriptors by role; each is the server's to close.
type files struct {
	stdio    [3]int
	bundle   *os.File
	original string // where the bundle comes from, if bundle is a copy
	policy   *os.File
	signed   *os.File // the bundle's signature
	params   *os.File
	read     []byte // what was read of params, which comes before the rest of it
	inputs   []*os.File
	outputs  *os.File

	listeners, socketDirs []*os.File

	all   []int
	owned map[int]*os.File // those of all that an os.File holds, by number
}

// from is where the bundle is on the host, by the descriptor: a name may have come to mean something else since it was looked at.
func (f *files) from() (string, error) {
	if f.original != "" {
		return f.original, nil
	}
	at, err := rootfs.SourceOf(int(f.bundle.Fd()))
	return at.Path, err
}

// maxWays are looked at: two names of 4096 bytes have no more parts.
const maxWays = 4096

// sort assigns the descriptors to their roles. What a role needs is checked on the descriptor: a caller may pass anything.
func sort(r *helper.Request, fds []int) (*files, error) {
	f := &files{stdio: [3]int{-1, -1, -1}, all: fds, owned: map[int]*os.File{}}
	if len(r.Files) != len(fds) {
		return f, refused("the request names %d descriptors and passes %d", len(r.Files), len(fds))
	}
	if len(r.Ways) > maxWays {
		return f, refused("the request names %d paths to the policy and the manifest, %d are enough", len(r.Ways), maxWays)
	}
	for i, role := range r.Files {
		if role != "input" && role != "listener" && role != "socket-dir" && slices.Contains(r.Files[:i], role) {
			return f, refused("the request passes two descriptors for %s", role)
		}
		if err := f.assign(role, fds[i]); err != nil {
			return f, err
		}
	}
	if helper.Plain(r.Op) || helper.Served(r.Op) {
		return f, nil
	}
	if dir := r.WorkDir; dir != "" && (!path.IsAbs(dir) || path.Clean(dir) != dir || strings.ContainsRune(dir, 0)) {
		return f, &helper.Error{Message: fmt.Sprintf("--workdir %q is not a path as the sandbox has it", dir), Hint: "give an absolute one without . or .., such as /skill/data or /tmp"}
	}
	if f.bundle == nil && r.Op != helper.OpSessionExec {
		return f, refused("the request passes no bundle")
	}
	if (r.Op == helper.OpExec || r.Op == helper.OpSessionExec) && (f.stdio[0] < 0 || f.stdio[1] < 0 || f.stdio[2] < 0) {
		return f, refused("the request passes no stdin, stdout or stderr")
	}
	named := 0
	for _, p := range r.Publish {
		if p.Socket != "" {
			named++
		}
		if strings.ContainsAny(p.Socket, "/\x00") || p.Socket == "." || p.Socket == ".." {
			return f, refused("%q is no name of a socket", p.Socket)
		}
	}
	if len(f.listeners) != len(r.Publish) || len(f.socketDirs) != named {
		return f, refused("the request publishes %d ports, %d at unix sockets, and passes %d listeners and %d directories", len(r.Publish), named, len(f.listeners), len(f.socketDirs))
	}
	if len(f.inputs) != len(r.Inputs) {
		return f, refused("the request names %d inputs and passes %d", len(r.Inputs), len(f.inputs))
	}
	return f, nil
}

func (f *files) assign(role string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("server: descriptor %s: %w", role, err)
	}
	kind := st.Mode & unix.S_IFMT
	want := func(ok bool, what string) error {
		if !ok {
			return refused("the %s is not %s", role, what)
		}
		return nil
	}
	file := func() *os.File {
		f.owned[fd] = os.NewFile(uintptr(fd), role)
		return f.owned[fd]
	}
	switch role {
	case "stdin":
		f.stdio[0] = fd
	case "stdout":
		f.stdio[1] = fd
	case "stderr":
		f.stdio[2] = fd
	case "bundle":
		f.bundle = file()
		return want(kind == unix.S_IFDIR, "a directory")
	case "policy":
		f.policy = file()
		return want(kind == unix.S_IFREG || kind == unix.S_IFIFO, "a file")
	case "signature":
		f.signed = file()
		return want(kind == unix.S_IFREG, "a regular file")
	case "params":
		f.params = file()
		return want(kind != unix.S_IFDIR, "a file")
	case "input":
		f.inputs = append(f.inputs, file())
		return want(kind == unix.S_IFREG, "a regular file")
	case "listener":
		f.listeners = append(f.listeners, file())
		return want(kind == unix.S_IFSOCK, "a socket")
	case "socket-dir":
		f.socketDirs = append(f.socketDirs, file())
		return want(kind == unix.S_IFDIR, "a directory")
	case "outputs":
		f.outputs = file()
		return want(kind == unix.S_IFIFO, "a pipe")
	default:
		return refused("the request passes a descriptor with the unknown role %q", role)
	}
	return nil
}

// close closes every descriptor of the request; files that were closed before are not closed twice, for the number may be
// somebody else's by now.
func (f *files) close() {
	for _, fd := range f.all {
		if file, ok := f.owned[fd]; ok {
			file.Close()
		} else {
			unix.Close(fd)
		}
	}
}

// readAll reads a small file whole and refuses a larger one.
func readAll(f *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, refused("%s is larger than %d bytes", f.Name(), limit)
	}
	return data, nil
}
