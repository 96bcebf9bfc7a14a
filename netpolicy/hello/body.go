package hello

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// pass writes a request: its head, and its body as the head announces it.
func (h *head) pass(w io.Writer, r *bufio.Reader) error {
	if _, err := w.Write(h.raw); err != nil {
		return err
	}
	if h.chunked {
		return passChunks(w, r)
	}
	return passBytes(w, r, h.length)
}

func passBytes(w io.Writer, r *bufio.Reader, n int64) error {
	if n == 0 {
		return nil
	}
	_, err := io.CopyN(w, r, n)
	return midway(err)
}

// passChunks passes a chunked body on (RFC 9112 section 7.1), up to the line after its trailers.
func passChunks(w io.Writer, r *bufio.Reader) error {
	for {
		line, err := appendLine(r, nil, 64)
		if err != nil {
			return midway(err)
		}
		size, err := chunkSize(string(line[:len(line)-2]))
		if err != nil {
			return err
		}
		if size == 0 {
			return passTrailers(w, r, line)
		}
		if err := passChunk(w, r, line, size); err != nil {
			return err
		}
	}
}

// chunkSize reads plain hexadecimal. Extensions are refused: nobody sends them but those who hope that two parsers see their end in
// different places.
func chunkSize(s string) (int64, error) {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return 0, errors.New("the client sent a chunk whose size is not a plain number")
		}
	}
	n, err := strconv.ParseInt(s, 16, 64)
	if err != nil {
		return 0, errors.New("the client sent a chunk whose size is not a plain number")
	}
	return n, nil
}

// passChunk passes one chunk on, in one write when all of it has come already.
func passChunk(w io.Writer, r *bufio.Reader, line []byte, size int64) error {
	here := min(size, int64(r.Buffered()))
	data, _ := r.Peek(int(here))
	line = append(line, data...)
	_, _ = r.Discard(len(data))
	if here < size || r.Buffered() < 2 {
		if _, err := w.Write(line); err != nil {
			return err
		}
		line = line[:0]
		if err := passBytes(w, r, size-here); err != nil {
			return err
		}
	}
	var end [2]byte
	if _, err := io.ReadFull(r, end[:]); err != nil {
		return midway(err)
	}
	if string(end[:]) != "\r\n" {
		return errors.New("the client sent a chunk that is longer than its size")
	}
	_, err := w.Write(append(line, end[:]...))
	return err
}

// passTrailers passes on what follows the last chunk, whose line is given. A trailer changes neither the name nor the length (RFC 9110
// section 6.5.1), for those who merge it with the head.
func passTrailers(w io.Writer, r *bufio.Reader, raw []byte) (err error) {
	for {
		start := len(raw)
		if raw, err = appendLine(r, raw, MaxHead); err != nil {
			return midway(err)
		}
		line := string(raw[start : len(raw)-2])
		if line == "" {
			_, err = w.Write(raw)
			return err
		}
		name, _, err := field(line)
		if err != nil {
			return err
		}
		switch name {
		case "host", "content-length", "transfer-encoding", "connection", "upgrade":
			return fmt.Errorf("the client sent %s as a trailer", name)
		}
	}
}

// midway is the error of a client that stops within a request.
func midway(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the client sent no whole HTTP request: %w", io.ErrUnexpectedEOF)
	}
	return err
}
