package client

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// signatureSuffix is trust.Suffix, whose package the client does not link; a test compares them.
const signatureSuffix = ".skillbox.minisig"

// SignatureOf is where the signature of a bundle lies: beside its directory, with its name.
func SignatureOf(bundle string) (string, error) {
	path, err := filepath.Abs(bundle)
	if err != nil {
		return "", err
	}
	if path == "/" {
		return "", &helper.Error{Message: "the root directory is no bundle"}
	}
	return path + signatureSuffix, nil
}

// FindSignature opens the signature beside a bundle; nil is that there is none.
func FindSignature(bundle string) (*os.File, error) {
	path, err := SignatureOf(bundle)
	if err != nil {
		return nil, err
	}
	f, err := OpenSignature(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENAMETOOLONG) { // then there can be none
		return nil, nil
	}
	return f, err
}

// OpenSignature opens a signature's file. A link is refused: it would be an answer about what lies somewhere else.
func OpenSignature(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &helper.Error{Message: "the signature is a symbolic link", File: path, Hint: "name the file itself: --signature"}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open signature", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
