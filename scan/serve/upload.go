package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"

	"skillbox/bundle"
	"skillbox/bundle/unzip"
)

const maxParts = 100

// upload is a request's zip, in a file without a name.
type upload struct {
	file    *os.File
	size    int64
	name    string // the caller's for it: shown, and never a path
	ignored []string
}

// scanUpload answers POST /scan-upload.
func (s *Server) scanUpload(ctx context.Context, w http.ResponseWriter, r *http.Request) (*Answer, error) {
	up, err := s.receive(w, r)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.Temp, "upload-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve: %w", err), up.file.Close())
	}
	release := func() {
		if err := errors.Join(os.RemoveAll(dir), up.file.Close()); err != nil {
			s.Log.Error("an upload is left", "error", err)
		}
	}
	var leftOut []string
	// Unpacked when its turn has come: those who wait take the room of their zips only.
	prepare := func(ctx context.Context) (skill string, err error) {
		skill, leftOut, err = s.unpack(ctx, up, dir)
		return skill, err
	}
	a, err := s.scanned(ctx, job{up.name, prepare, release})
	if err == nil {
		a.About.Ignored, a.About.LeftOut = up.ignored, append([]string{}, leftOut...)
	}
	return a, err
}

// receive reads the request to its end.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (up *upload, err error) {
	body := r.Body
	r.Body = http.MaxBytesReader(w, body, s.Upload)
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fail(http.StatusUnsupportedMediaType, "the request must be multipart/form-data with the zip as its field file: %w", err)
	}
	up = &upload{}
	defer func() {
		if err != nil && up.file != nil {
			err = errors.Join(err, up.file.Close())
		}
		if errors.As(err, new(*http.MaxBytesError)) {
			s.swallow(w, body)
		}
	}()
	var asked []string
	for key := range r.URL.Query() {
		asked = append(asked, key)
	}
	for n := 0; ; n++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return up, bodyError(err)
		}
		if n >= maxParts {
			return up, fail(http.StatusBadRequest, "the form has more than %d fields", maxParts)
		}
		if err := s.part(up, part, &asked); err != nil {
			return up, err
		}
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return up, bodyError(err)
	}
	if err := s.received(w); err != nil {
		return up, err
	}
	if up.file == nil {
		return up, fail(http.StatusUnprocessableEntity, "the form has no field file: send the zip as such")
	}
	up.ignored = options(asked)
	return up, nil
}

// part takes one field of the form.
func (s *Server) part(up *upload, part *multipart.Part, asked *[]string) error {
	defer part.Close()
	if part.FormName() != "file" {
		*asked = append(*asked, part.FormName())
		if _, err := io.Copy(io.Discard, part); err != nil {
			return bodyError(err)
		}
		return nil
	}
	if up.file != nil {
		return fail(http.StatusUnprocessableEntity, "the form has two fields file: one skill is scanned at a time")
	}
	var err error
	if up.file, err = unnamed(s.Temp); err != nil {
		return err
	}
	up.name = part.FileName()
	if up.size, err = io.Copy(up.file, &reading{part}); err != nil {
		var read *readError
		if errors.As(err, &read) {
			return bodyError(read.err)
		}
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// reading marks the errors of a reader, which io.Copy does not tell from the writer's.
type reading struct{ io.Reader }

type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = &readError{err}
	}
	return n, err
}

// unnamed makes a file that goes when it is closed.
func unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "zip-")
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("serve: %w", err), f.Close())
	}
	return f, nil
}

// unpack returns the directory of the skill below dir, and what beside it is not part of it.
func (s *Server) unpack(ctx context.Context, up *upload, dir string) (skill string, leftOut []string, err error) {
	into, err := os.OpenRoot(dir)
	if err != nil {
		return "", nil, fmt.Errorf("serve: %w", err)
	}
	defer into.Close()
	if err := unzip.Extract(ctx, up.file, up.size, into, s.Unpacked); err != nil {
		var bad *unzip.Error
		if errors.As(err, &bad) {
			return "", nil, withHint(http.StatusBadRequest, err, bad.Hint)
		}
		return "", nil, err
	}
	if skill, leftOut, err = top(dir); err != nil {
		return "", nil, err
	}
	f, err := os.Open(skill)
	if err != nil {
		return "", nil, fmt.Errorf("serve: %w", err)
	}
	defer f.Close()
	if err := check(ctx, f, "the zip"); err != nil {
		return "", nil, scanError(err)
	}
	return skill, leftOut, nil
}

// top is where the skill begins: most programs pack a folder as a folder, and that of macOS adds one of its own.
func top(dir string) (skill string, leftOut []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, fmt.Errorf("serve: %w", err)
	}
	defer f.Close()
	b, err := bundle.Read(f)
	if err != nil {
		return "", nil, scanError(err)
	}
	if b.Kind != bundle.Command {
		return dir, nil, nil
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return "", nil, fmt.Errorf("serve: %w", err)
	}
	for _, e := range entries {
		switch {
		case e.Name() == "__MACOSX" || e.Name() == ".DS_Store":
			leftOut = append(leftOut, e.Name())
		case skill != "" || !e.IsDir():
			return "", nil, noManifest("the zip")
		default:
			skill = filepath.Join(dir, e.Name())
		}
	}
	if skill == "" {
		err = noManifest("the zip")
	}
	return skill, leftOut, err
}
