package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// root is a directory below which /scan may look. It is held open: what its name leads to later is not asked.
type root struct {
	*os.File
	path string // without links
}

func openRoot(name string) (root, error) {
	path, err := filepath.EvalSymlinks(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return root{}, fmt.Errorf("serve: root: %w", err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return root{}, fmt.Errorf("serve: root: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	return root{os.NewFile(uintptr(fd), path), path}, nil
}

// below returns path relative to the root.
func (r root) below(path string) (string, bool) {
	rest, err := filepath.Rel(r.path, path)
	return rest, err == nil && filepath.IsLocal(rest)
}

const maxJSON = 64 << 10

// scanDirectory answers POST /scan.
func (s *Server) scanDirectory(ctx context.Context, w http.ResponseWriter, r *http.Request) (*Answer, error) {
	name, ignored, err := s.readScan(w, r)
	if err != nil {
		return nil, err
	}
	if len(s.roots) == 0 {
		return nil, fail(http.StatusForbidden, "this service scans no directories of its machine: start it with --root DIR, or send the skill to /scan-upload")
	}
	dir, err := s.open(name)
	if err != nil {
		return nil, err
	}
	prepare := func(ctx context.Context) (string, error) { return fdPath(dir), check(ctx, dir, name) }
	a, err := s.scanned(ctx, job{name, prepare, func() { _ = dir.Close() }}) // it was only read from
	if err == nil {
		a.About.Ignored = ignored
	}
	return a, err
}

// fdPath names a directory by its descriptor: whatever becomes of its name, this is the one that was looked at.
func fdPath(dir *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) }

// readScan reads the request to its end, without which nobody would notice that the caller goes away.
func (s *Server) readScan(w http.ResponseWriter, r *http.Request) (name string, ignored []string, err error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJSON))
	if err != nil {
		return "", nil, bodyError(err)
	}
	if err := s.received(w); err != nil {
		return "", nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return "", nil, fail(http.StatusUnprocessableEntity, "the body must be one JSON object with skill_directory: %w", errors.Join(err))
	}
	name, ok := fields["skill_directory"].(string)
	switch {
	case !ok || name == "":
		return "", nil, fail(http.StatusUnprocessableEntity, "skill_directory: a text is needed")
	case !filepath.IsAbs(name) || strings.ContainsRune(name, 0):
		return "", nil, fail(http.StatusUnprocessableEntity, "skill_directory: must be an absolute path")
	}
	var asked []string
	for key, value := range fields {
		if key != "skill_directory" && value != nil && value != false && value != "" {
			asked = append(asked, key)
		}
	}
	return name, options(asked), nil
}

// open opens a directory below a root. Of what lies elsewhere it does not say whether it exists.
func (s *Server) open(name string) (*os.File, error) {
	path, failed := filepath.EvalSymlinks(name)
	if failed != nil {
		path = filepath.Clean(name)
	}
	for _, one := range s.roots {
		rest, ok := one.below(path)
		if !ok {
			continue
		}
		if failed != nil {
			return nil, fail(http.StatusNotFound, "skill_directory: %w", failed)
		}
		// Links were followed above; one that takes the place of a directory now leads nowhere.
		fd, err := unix.Openat2(int(one.Fd()), rest, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return nil, fail(http.StatusBadRequest, "skill_directory: %w", &fs.PathError{Op: "open", Path: name, Err: err})
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	return nil, fail(http.StatusForbidden, "skill_directory: does not lie below a directory that the service was given with --root")
}

// received takes the deadline back that a body has to come in (Handler): one that passes later would look as if the caller had gone. A
// body that is not read to its end keeps it, for the server still waits for the rest.
func (s *Server) received(w http.ResponseWriter) error {
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// bodyError is what went wrong with reading a request.
func bodyError(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", large.Limit), err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(http.StatusRequestTimeout, "the request did not come in time")
	}
	return fail(http.StatusBadRequest, "the request cannot be read: %w", err)
}
