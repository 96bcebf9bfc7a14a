// Package unzip unpacks a bundle that a stranger sent as a zip. It repairs nothing: an archive that two programs could read differently,
// that means more than files and directories, or that grows beyond its limits, is refused with the name of the entry.
//
// archive/zip reads what the directory at the archive's end says. That alone is not enough here: programs that read a zip from its
// beginning, as many servers do, see the headers before the data instead, and whatever lies between. What was scanned must be what those unpack.
package unzip

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// Limits bound what is unpacked. Zero means the default; there is no way to say unlimited.
type Limits struct {
	Files int   // files, default 10,000; directories may be as many again
	Bytes int64 // of the files' contents together, default 256 MiB
	Ratio int64 // of an entry's size to what it takes in the archive, default 200; entries below 1 MiB are not looked at
}

// The defaults of Limits, and what no caller changes.
const (
	DefaultFiles       = 10_000
	DefaultBytes int64 = 256 << 20
	DefaultRatio int64 = 200

	ratioFrom    = 1 << 20
	maxDirectory = 4 << 20 // bytes of the central directory: archive/zip reads all of it before it says how many entries there are
)

func (l Limits) orDefault() Limits {
	if l.Files <= 0 {
		l.Files = DefaultFiles
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	if l.Ratio <= 0 {
		l.Ratio = DefaultRatio
	}
	return l
}

// Error says what is wrong with an archive. Any other error of Extract's is this machine's.
type Error struct {
	Entry   string // name of the entry, escaped; "" is the archive itself
	Message string
	Hint    string // what to do about it, "" for nothing; not part of Error()
}

func (e *Error) Error() string {
	if e.Entry == "" {
		return "zip: " + e.Message
	}
	return fmt.Sprintf("zip: \"%s\": %s", e.Entry, e.Message)
}

// refuse names an entry.
func refuse(entry, hint, format string, a ...any) *Error {
	return &Error{Entry: shown(entry), Message: fmt.Sprintf(format, a...), Hint: hint}
}

// shown is a stranger's name in Go's %q style without the quotes, and not more of it than fits into a line.
func shown(name string) string {
	const most = 256
	if len(name) > most {
		name = name[:most] + "…"
	}
	q := strconv.Quote(name)
	return q[1 : len(q)-1]
}

// Extract unpacks the archive of size bytes into dir, which must be empty. Nothing is written before the whole archive was judged by
// what it says of itself; what then turns out otherwise ends the unpacking, and leaves what was written. Files get the mode 0644, or 0755 with
// an execute bit; directories 0755; times are those of the unpacking.
func Extract(ctx context.Context, archive io.ReaderAt, size int64, dir *os.Root, limits Limits) error {
	limits = limits.orDefault()
	end, err := findEnd(archive, size)
	if err != nil {
		return err
	}
	if end.records > 2*limits.Files {
		return refuse("", "", "has %d entries, and %d files and as many directories are the most", end.records, limits.Files)
	}
	z, err := zip.NewReader(archive, size)
	if err != nil {
		return faulty("", err)
	}
	z.RegisterDecompressor(zip.Deflate, inflate)
	if err := checkLayout(archive, z.File, end); err != nil {
		return err
	}
	if err := judge(z.File, limits); err != nil {
		return err
	}
	return write(ctx, z.File, dir)
}

// judge looks at what each entry says of itself.
func judge(files []*zip.File, limits Limits) error {
	names := newTree(limits.Files)
	left := limits.Bytes
	for _, f := range files {
		if err := judgeEntry(f, limits); err != nil {
			return err
		}
		if err := names.add(f.Name); err != nil {
			return err
		}
		if f.UncompressedSize64 > uint64(left) {
			return refuse(f.Name, "", "makes the files larger than %d bytes together", limits.Bytes)
		}
		left -= int64(f.UncompressedSize64)
	}
	return nil
}

// What the flags of an entry say (APPNOTE.TXT 4.4.4).
const (
	flagEncrypted  = 1 << 0
	flagDescriptor = 1 << 3
	flagPatch      = 1 << 5
	flagStrong     = 1 << 6
	flagUTF8       = 1 << 11
	flagMasked     = 1 << 13
)

func judgeEntry(f *zip.File, limits Limits) error {
	size, packed := f.UncompressedSize64, f.CompressedSize64
	switch {
	case f.Flags&(flagEncrypted|flagStrong|flagMasked) != 0:
		return refuse(f.Name, "send it without a password", "is encrypted")
	case f.Flags&flagPatch != 0:
		return refuse(f.Name, "", "is a patch of another file")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return refuse(f.Name, "pack it with deflate, which every zip program can", "is packed by method %d, and only stored and deflated entries are read", f.Method)
	case f.Method == zip.Store && size != packed:
		return refuse(f.Name, "", "is stored and yet of two sizes, %d and %d bytes", packed, size)
	case f.Method == zip.Store && f.Flags&flagDescriptor != 0 && size > 0: // empty ones are Info-ZIP's in a pipe, see place.after
		return refuse(f.Name, "pack it with deflate, or into a file instead of a pipe",
			"is stored without a size before its data, so that each program has to guess where it ends")
	case size > ratioFrom && size/uint64(limits.Ratio) > packed:
		return refuse(f.Name, "", "grows from %d to %d bytes, more than %d times", packed, size, limits.Ratio)
	}
	return judgeMode(f, size)
}

// The file types of a Unix mode, in the upper half of an entry's attributes (stat.h; they are the same on every system that writes them).
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	setID    = 0o006000
)

var typeNames = map[uint32]string{
	0o120000: "a symbolic link", 0o060000: "a block device", 0o020000: "a character device", 0o010000: "a FIFO", 0o140000: "a socket",
}

// judgeMode looks at the Unix mode whatever system the entry says it comes from: some programs do not ask for that either.
func judgeMode(f *zip.File, size uint64) error {
	mode, dir := f.ExternalAttrs>>16, isDir(f.Name)
	kind := mode & typeMask
	switch {
	case kind != 0 && kind != typeFile && kind != typeDir:
		name, known := typeNames[kind]
		if !known {
			name = fmt.Sprintf("of the unknown type %#o", kind)
		}
		return refuse(f.Name, "remove it", "is %s, and only files and directories are unpacked", name)
	case kind == typeDir && !dir, kind == typeFile && dir:
		return refuse(f.Name, "", "is a directory by its name or by its mode, but not by both")
	case dir && size > 0:
		return refuse(f.Name, "", "is a directory with content")
	case mode&setID != 0 && !dir:
		return refuse(f.Name, "remove it with `chmod ug-s`", "has the set-user-id or set-group-id bit")
	}
	return nil
}

func isDir(name string) bool { return name != "" && name[len(name)-1] == '/' }

// faulty is an error that archive/zip met in what it read. Where it could not read, that is not the archive's fault.
func faulty(entry string, err error) error {
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return fmt.Errorf("unzip: %w", err)
	case errors.Is(err, errRest):
		return refuse(entry, "pack it again", "has more packed data than its content takes, which some programs would read as further entries")
	case errors.Is(err, zip.ErrChecksum):
		return refuse(entry, "send it again", "does not have the checksum that it says")
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refuse(entry, "send it again", "is damaged, or of another size than it says")
	}
	return refuse(entry, "send it again", "is damaged: %v", err)
}
