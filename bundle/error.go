package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
)

// Error says what is wrong with a bundle, and where. Either File is set (a manifest: Line and Column count from 1, 0 when the whole
// file is meant) or Path (any file of the bundle).
type Error struct {
	Path    string // path in the bundle, escaped: no control character, valid UTF-8; "" is the bundle itself
	File    string // path of a manifest in the bundle
	Line    int
	Column  int
	Field   string // the key in the manifest, dotted
	Message string
	Hint    string // what to do about it, "" for nothing; not part of Error(), because the command prints it on a line of its own

	err error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("bundle: ")
	switch {
	case e.File != "" && e.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		fmt.Fprintf(&b, "%s: ", e.File)
	case e.Path != "":
		fmt.Fprintf(&b, "\"%s\": ", e.Path)
	}
	if e.File != "" && e.Field != "" {
		fmt.Fprintf(&b, "%s: ", e.Field)
	}
	b.WriteString(e.Message)
	return b.String()
}

// Unwrap returns the system's error behind this one, if there is one.
func (e *Error) Unwrap() error { return e.err }

// escape makes a stranger's path fit for terminals, logs and JSON, in Go's %q style without the quotes.
func escape(p string) string {
	q := strconv.Quote(p)
	return q[1 : len(q)-1]
}

func refuse(path, message, hint string) *Error {
	return &Error{Path: escape(path), Message: message, Hint: hint}
}

// sysError is a failed system call on a file of the bundle.
func sysError(path string, err error) *Error {
	e := &Error{Path: escape(path), Message: err.Error(), err: err}
	switch {
	case errors.Is(err, syscall.EXDEV):
		e.Message, e.Hint = "is a mount point", "copy the files into the bundle, or unmount it"
	case errors.Is(err, syscall.ELOOP):
		e.Message = "turned into a symbolic link while it was read"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		e.Message = changed
	case errors.Is(err, syscall.ENOSYS):
		e.Message, e.Hint = "openat2 is not available", "skillbox needs Linux 5.6 or newer, and a container runtime that lets openat2 through"
	}
	return e
}

const changed = "changed while it was read"
