package unzip

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Lengths of the fixed parts of a zip, and the four bytes that they begin with (APPNOTE.TXT 4.3).
const (
	localLen     = 30
	directoryLen = 46
	endLen       = 22
	locatorLen   = 20
	maxComment   = 1<<16 - 1
)

var (
	localMark      = []byte("PK\x03\x04")
	endMark        = []byte("PK\x05\x06")
	locatorMark    = []byte("PK\x06\x07")
	descriptorMark = []byte("PK\x07\x08")
)

// end is what the record at the archive's end says, and where it is.
type end struct {
	at      int64
	records int
	size    int64 // of the central directory
	offset  int64 // of the central directory
}

// findEnd reads the end record. It must be the last thing in the archive, be there once, and follow the directory that it names: each program
// searches for it in its own way.
func findEnd(archive io.ReaderAt, size int64) (end, error) {
	tail := make([]byte, min(size, endLen+maxComment))
	if n, err := archive.ReadAt(tail, size-int64(len(tail))); n < len(tail) {
		return end{}, fmt.Errorf("unzip: %w", err)
	}
	at := bytes.LastIndex(tail, endMark)
	if at < 0 || len(tail)-at < endLen {
		return end{}, refuse("", "send one whole file that a zip program has made", "is not a zip archive, or its end is missing")
	}
	record := tail[at:]
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint16(record[i:])) }
	e := end{
		at: size - int64(len(record)), records: int(word(10)),
		size: int64(binary.LittleEndian.Uint32(record[12:])), offset: int64(binary.LittleEndian.Uint32(record[16:])),
	}
	switch {
	case int64(len(record)) != endLen+word(20):
		return e, refuse("", "", "has something after its end")
	case at >= locatorLen && bytes.Equal(tail[at-locatorLen:at-locatorLen+4], locatorMark),
		word(10) == maxComment, e.size == 1<<32-1, e.offset == 1<<32-1:
		return e, refuse("", "pack it again", "is in the zip64 form, of which an archive of this size has no need")
	case word(4) != 0 || word(6) != 0 || word(8) != word(10):
		return e, refuse("", "send it as one file", "is one of several parts")
	case e.size > maxDirectory:
		return e, refuse("", "", "has a directory of %d bytes, and %d are the most", e.size, maxDirectory)
	case e.offset+e.size != e.at:
		return e, refuse("", "pack it again", "has something before its first entry, or between its directory and its end")
	case e.records == 0:
		return e, refuse("", "", "is empty")
	}
	return e, nil
}

// checkLayout makes sure that the archive is its entries, one behind the other, and then its directory, and that the header before each entry's
// data says what the directory says.
func checkLayout(archive io.ReaderAt, files []*zip.File, e end) error {
	size := int64(0)
	for _, f := range files {
		size += directoryLen + int64(len(f.Name)+len(f.Extra)+len(f.Comment))
	}
	if len(files) != e.records || size != e.size {
		return refuse("", "pack it again", "has %d entries in %d bytes of directory, and says %d in %d", len(files), size, e.records, e.size)
	}
	placed := make([]place, len(files))
	for i, f := range files {
		offset, err := f.DataOffset()
		if err != nil {
			return faulty(f.Name, err)
		}
		placed[i] = place{f, offset}
	}
	slices.SortStableFunc(placed, func(a, b place) int { return cmp.Compare(a.data, b.data) })
	at := int64(0)
	for _, p := range placed {
		next, err := p.check(archive, at, e.offset)
		if err != nil {
			return err
		}
		at = next
	}
	if at != e.offset {
		return refuse("", "pack it again", "has %d bytes between its last entry and its directory", e.offset-at)
	}
	return nil
}

// place is an entry and where its data begins, by the directory.
type place struct {
	*zip.File
	data int64
}

// check compares the header at an offset with the directory, and returns where the next one is. limit is where the directory begins.
func (p place) check(archive io.ReaderAt, at, limit int64) (next int64, err error) {
	var h [localLen]byte
	if at+localLen > limit {
		return 0, p.displaced()
	}
	if _, err := archive.ReadAt(h[:], at); err != nil {
		return 0, fmt.Errorf("unzip: %w", err)
	}
	word := func(i int) uint16 { return binary.LittleEndian.Uint16(h[i:]) }
	long := func(i int) uint32 { return binary.LittleEndian.Uint32(h[i:]) }
	rest := make([]byte, int(word(26))+int(word(28)))
	if !bytes.Equal(h[:4], localMark) || at+localLen+int64(len(rest)) != p.data || p.data > limit || p.CompressedSize64 > uint64(limit-p.data) {
		return 0, p.displaced()
	}
	if _, err := archive.ReadAt(rest, at+localLen); err != nil {
		return 0, fmt.Errorf("unzip: %w", err)
	}
	const known = flagEncrypted | flagDescriptor | flagPatch | flagStrong | flagUTF8 | flagMasked
	name, extra := string(rest[:word(26)]), rest[word(26):]
	later := p.Flags&flagDescriptor != 0 // then what was not known yet is zero
	same := func(local uint32, told uint64) bool { return uint64(local) == told || later && local == 0 }
	switch {
	case name != p.Name:
		return 0, refuse(p.Name, "pack it again", "is called \"%s\" before its data", shown(name))
	case word(6)&known != p.Flags&known, word(8) != p.Method,
		!same(long(14), uint64(p.CRC32)), !same(long(18), p.CompressedSize64), !same(long(22), p.UncompressedSize64):
		return 0, refuse(p.Name, "pack it again", "is described in two ways, before its data and in the directory")
	case p.CompressedSize == 1<<32-1 || p.UncompressedSize == 1<<32-1:
		return 0, refuse(p.Name, "pack it again", "is in the zip64 form, of which an archive of this size has no need")
	case otherName(extra, name) || otherName(p.Extra, name):
		return 0, refuse(p.Name, "pack it again with names in UTF-8", "has another name in Unicode")
	}
	return p.after(archive, limit)
}

func (p place) displaced() error {
	return refuse(p.Name, "pack it again", "overlaps another entry or the directory, or something that is no entry lies before it")
}

// after returns where the entry ends: behind its data, and the descriptor that some programs add to it.
func (p place) after(archive io.ReaderAt, limit int64) (int64, error) {
	at := p.data + int64(p.CompressedSize64)
	if p.Flags&flagDescriptor == 0 {
		return at, nil
	}
	var d [16]byte
	copy(d[:], descriptorMark)
	binary.LittleEndian.PutUint32(d[4:], p.CRC32)
	binary.LittleEndian.PutUint32(d[8:], p.CompressedSize)
	binary.LittleEndian.PutUint32(d[12:], p.UncompressedSize)
	var is [16]byte
	n, err := archive.ReadAt(is[:min(16, limit-at)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("unzip: %w", err)
	}
	switch {
	case n == 16 && is == d:
		return at + 16, nil
	case n >= 12 && bytes.Equal(is[:12], d[4:]) && p.Method != zip.Store: // the mark is optional, but for those who have to search for it
		return at + 12, nil
	}
	return 0, refuse(p.Name, "pack it again", "is described in two ways, behind its data and in the directory")
}

// otherName tells whether the extra field has a name in Unicode (Info-ZIP, 0x7075) that is not the entry's: some programs unpack to that one.
func otherName(extra []byte, name string) bool {
	const unicodePath, head = 0x7075, 5 // version, checksum of the name that it stands for
	for len(extra) >= 4 {
		id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		if extra = extra[4:]; n > len(extra) {
			return id == unicodePath
		}
		if id == unicodePath && (n < head || string(extra[head:n]) != name) {
			return true
		}
		extra = extra[n:]
	}
	return false
}
