package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"skillbox/helper"
	"skillbox/output"
)

// Outputs writes the files that a skill leaves in /output to a directory, which it makes if it is not there, while they come. write is for skillboxd;
// wait closes it and waits for the last file.
func Outputs(to string, force bool) (write *os.File, wait func() error, err error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return nil, nil, err
	}
	dir, err := os.OpenRoot(to)
	if err != nil {
		return nil, nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	done := make(chan error, 1)
	go func() {
		err := output.Extract(read, dir, force)
		// Drain, so that skillboxd is not left writing into a full pipe.
		_, copyErr := io.Copy(io.Discard, read)
		done <- errors.Join(err, copyErr, read.Close(), dir.Close())
	}()
	return write, func() error { return errors.Join(write.Close(), <-done) }, nil
}

// Capture are files without names that take the skill's output for the envelope; nil is not captured.
type Capture struct{ Stdout, Stderr *os.File }

// NewCapture makes both.
func NewCapture() (c Capture, err error) {
	if c.Stdout, err = memory("stdout", nil); err == nil {
		c.Stderr, err = memory("stderr", nil)
	}
	return c, err
}

// Fill reads back what was captured. Bytes that are not UTF-8 become U+FFFD, as JSON demands. Output that is one JSON value is the
// Result's, if the skill wrote none to its result file.
func (c *Capture) Fill(r *helper.Result) error {
	var stdout []byte
	for _, of := range []struct {
		file *os.File
		into *string
	}{{c.Stdout, &r.Stdout}, {c.Stderr, &r.Stderr}} {
		if of.file == nil {
			continue
		}
		data, err := io.ReadAll(io.NewSectionReader(of.file, 0, 1<<40))
		if err != nil {
			return fmt.Errorf("client: read %s back: %w", of.file.Name(), err)
		}
		*of.into = string(data)
		if of.file == c.Stdout {
			stdout = data
		}
	}
	if len(r.Result) == 0 || bytes.Equal(r.Result, []byte("null")) {
		if value := bytes.TrimSpace(stdout); json.Valid(value) && utf8.Valid(value) && !r.StdoutTruncated {
			r.Result = value
		}
	}
	return nil
}
