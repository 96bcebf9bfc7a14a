// Package opener makes calls on files in a box's place, with the skill's rights and no others: who watches what a skill opens reads the
// path once, has this process open just that, and gives the skill the descriptor. The kernel never reads the skill's memory again.
//
// It is a process of its own, for its main thread becomes the skill: it enters the box's mount namespace, takes the skill's user and
// group, and drops every capability. What hangs, as a file system that does not answer may, hangs here.
package opener

import (
	"encoding/binary"
	"errors"
)

// Op is a call.
type Op uint32

// The calls, each with the arguments of the system call of its name.
const (
	Open     Op = iota // First; Flags, Mode
	Check              // First as a program: what execve(2) would say of it
	Unlink             // First; Flags
	Mkdir              // First; Mode
	Mknod              // First; Mode, Device
	Rename             // First to Second; Flags
	Link               // First to Second; Flags
	Symlink            // Second with the text First
	Chmod              // First; Mode
	Truncate           // First; Length
)

// Request is one call. Paths are relative to the directories that come with it, the first or both; one that is absolute, to the box's root.
type Request struct {
	Op            Op
	Flags         uint32
	Mode, Umask   uint32
	Device        uint64 // Length of Truncate
	First, Second string
}

// acknowledged says that a file that came of it is followed by an empty reply, which says that the opener has it no more: as long as anybody
// has a file open for writing, it cannot be started (ETXTBSY).
func (r *Request) acknowledged() bool {
	const accessMode = 3
	return r.Op == Open && r.Flags&accessMode != 0
}

// Reply is what came of it.
type Reply struct {
	Errno uint32 // 0: done
	// Elsewhere says that the kernel must do it in the caller's own context: the file is a device, a pipe, or one of /proc.
	Elsewhere bool
	// Path is where First lies, resolved in the one lookup that the call was made with, and To likewise of Second: of Open, Check, Chmod,
	// Truncate and a Link that follows, the file's own; of the others that of the last name, which they do not follow. "" where nobody can say.
	Path, To string
}

// MaxPath is PATH_MAX: longer paths are for the kernel to refuse.
const MaxPath = 4096

const header = 4*5 + 8

// maxReply is the size of the longest: of a path, what the kernel says of a directory, and one name more.
const maxReply = 9 + 2*(MaxPath+256)

func (r *Request) encode() []byte {
	b := make([]byte, 0, header+len(r.First)+len(r.Second))
	for _, v := range []uint32{uint32(r.Op), r.Flags, r.Mode, r.Umask, uint32(len(r.First))} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, r.Device)
	b = append(b, r.First...)
	return append(b, r.Second...)
}

var errFrame = errors.New("opener: not a frame")

func (r *Request) decode(b []byte) error {
	if len(b) < header {
		return errFrame
	}
	word := func(n int) uint32 { return binary.NativeEndian.Uint32(b[4*n:]) }
	r.Op, r.Flags, r.Mode, r.Umask = Op(word(0)), word(1), word(2), word(3)
	first := int(word(4))
	r.Device = binary.NativeEndian.Uint64(b[20:])
	if b = b[header:]; first > len(b) {
		return errFrame
	}
	r.First, r.Second = string(b[:first]), string(b[first:])
	return nil
}

func (r *Reply) encode() []byte {
	b := binary.NativeEndian.AppendUint32(nil, r.Errno)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(r.Path)))
	elsewhere := byte(0)
	if r.Elsewhere {
		elsewhere = 1
	}
	b = append(append(b, elsewhere), r.Path...)
	return append(b, r.To...)
}

func (r *Reply) decode(b []byte) error {
	if len(b) < 9 {
		return errFrame
	}
	r.Errno, r.Elsewhere = binary.NativeEndian.Uint32(b), b[8] == 1
	path, text := binary.NativeEndian.Uint32(b[4:]), string(b[9:])
	if int(path) > len(text) {
		return errFrame
	}
	r.Path, r.To = text[:path], text[path:]
	return nil
}
