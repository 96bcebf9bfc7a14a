package audit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// line is one line of a log's segments, and where it stands.
type line struct {
	segment uint64
	number  int   // from 1
	end     int64 // where the next one begins, in bytes
	text    []byte
	torn    bool // it has no end
}

// lines reads the segments one after another, with a look ahead.
type lines struct {
	dir      *folder
	segments []uint64 // still to be read
	file     *os.File
	r        *bufio.Reader
	at       line
	ahead    []line
}

func (s *lines) close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}

// next returns nil at the end.
func (s *lines) next() (*line, error) {
	if len(s.ahead) > 0 {
		l := s.ahead[0]
		s.ahead = s.ahead[1:]
		return &l, nil
	}
	return s.read()
}

// peek returns the line after the one that next has returned; nil at the end.
func (s *lines) peek() (*line, error) {
	if len(s.ahead) == 0 {
		l, err := s.read()
		if l == nil || err != nil {
			return nil, err
		}
		s.ahead = append(s.ahead, *l)
	}
	return &s.ahead[0], nil
}

func (s *lines) read() (*line, error) {
	for {
		if s.file == nil {
			if len(s.segments) == 0 {
				return nil, nil
			}
			f, err := s.dir.open(segmentName(s.segments[0]), unix.O_RDONLY)
			if err != nil {
				return nil, err
			}
			s.at = line{segment: s.segments[0]}
			s.segments, s.file = s.segments[1:], f
			if s.r == nil {
				s.r = bufio.NewReaderSize(f, 4*MaxRecord)
			} else {
				s.r.Reset(f)
			}
		}
		text, err := s.r.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if err == io.EOF && len(text) == 0 {
			if err := s.close(); err != nil {
				return nil, err
			}
			continue
		}
		s.at.number++
		s.at.end += int64(len(text))
		s.at.torn = err == io.EOF
		s.at.text = bytes.Clone(bytes.TrimSuffix(text, []byte("\n")))
		l := s.at
		if l.torn { // the segment ends here: what a writer adds meanwhile is the rest of this line, and no line of its own
			if err := s.close(); err != nil {
				return nil, err
			}
		}
		return &l, nil
	}
}
