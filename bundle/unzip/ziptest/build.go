// Package ziptest makes zip archives for tests, among them those that no zip program makes.
package ziptest

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
)

// Entry is one entry of an archive. What is zero is as it should be: mode, sizes, names and checksum follow from Name and Data.
type Entry struct {
	Name  string
	Data  []byte
	Mode  uint32 // of Unix, with the type; a regular file's 0644
	Flags uint16

	Method  uint16 // when Packed is set
	Packed  []byte // the data as it lies in the archive; nil deflates Data
	Declare uint32 // the size that both headers say
	Sum     uint32 // the checksum that both say

	LocalName   string // before the data
	LocalMethod uint16
	LocalSum    uint32
	Extra       []byte // in both headers
	LocalExtra  uint16 // the length of the extra ones that the header before the data says
	Later       bool   // sizes and checksum before the data are zero, as programs write them that do not know them yet
	Descriptor  []byte // behind the data, as it is
	Hide        bool   // not in the directory
	Only        bool   // only in the directory: at the place of the entry before it
	Before      []byte // something that is no entry
}

// Archive is what else there is in one.
type Archive struct {
	Entries []Entry
	Comment string
	Between []byte // before the directory
	Within  []byte // between the directory and the end
	After   []byte
	Count   int // of entries, as the end says; 0 is how many there are
	Disk    uint16
}

// Make is an archive of these entries.
func Make(entries ...Entry) []byte { return Archive{Entries: entries}.Bytes() }

// Bytes writes it.
func (a Archive) Bytes() []byte {
	var out, directory bytes.Buffer
	count, at := 0, 0
	for _, e := range a.Entries {
		e.fill()
		if !e.Only {
			out.Write(e.Before)
			at = out.Len()
			e.local(&out)
		}
		if !e.Hide {
			e.directory(&directory, at)
			count++
		}
	}
	out.Write(a.Between)
	offset := out.Len()
	out.Write(directory.Bytes())
	out.Write(a.Within)
	if a.Count != 0 {
		count = a.Count
	}
	put(&out, []byte("PK\x05\x06"), a.Disk, a.Disk, uint16(count), uint16(count), uint32(directory.Len()), uint32(offset), uint16(len(a.Comment)), []byte(a.Comment), a.After)
	return out.Bytes()
}

func (e *Entry) fill() {
	if e.Packed == nil {
		e.Method, e.Packed = 8, Deflate(e.Data)
	}
	if e.Declare == 0 {
		e.Declare = uint32(len(e.Data))
	}
	if e.Sum == 0 {
		e.Sum = crc32.ChecksumIEEE(e.Data)
	}
	if e.Mode == 0 {
		e.Mode = 0o100644
		if n := len(e.Name); n > 0 && e.Name[n-1] == '/' {
			e.Mode = 0o040755
		}
	}
	if e.LocalName == "" {
		e.LocalName = e.Name
	}
	if e.LocalSum == 0 {
		e.LocalSum = e.Sum
	}
	if e.LocalMethod == 0 {
		e.LocalMethod = e.Method
	}
}

func (e *Entry) local(out *bytes.Buffer) {
	sum, packed, size := e.LocalSum, uint32(len(e.Packed)), e.Declare
	if e.Later {
		sum, packed, size = 0, 0, 0
	}
	put(out, []byte("PK\x03\x04"), uint16(20), e.Flags, e.LocalMethod, uint32(0x5b770000), sum, packed, size,
		uint16(len(e.LocalName)), max(e.LocalExtra, uint16(len(e.Extra))), []byte(e.LocalName), e.Extra, e.Packed, e.Descriptor)
}

func (e *Entry) directory(out *bytes.Buffer, at int) {
	const unix = 3 << 8
	put(out, []byte("PK\x01\x02"), uint16(unix|20), uint16(20), e.Flags, e.Method, uint32(0x5b770000), e.Sum, uint32(len(e.Packed)), e.Declare,
		uint16(len(e.Name)), uint16(len(e.Extra)), uint16(0), uint16(0), uint16(0), e.Mode<<16, uint32(at), []byte(e.Name), e.Extra)
}

// descriptor is what follows the data of an entry with flag 8 (APPNOTE.TXT 4.3.9).
func descriptor(e Entry) []byte {
	e.fill()
	var out bytes.Buffer
	put(&out, []byte("PK\x07\x08"), e.Sum, uint32(len(e.Packed)), e.Declare)
	return out.Bytes()
}

// put writes numbers in the order of a zip, the lowest byte first.
func put(out *bytes.Buffer, fields ...any) {
	for _, f := range fields {
		_ = binary.Write(out, binary.LittleEndian, f) // a buffer takes everything
	}
}

// Deflate packs data.
func Deflate(data []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestCompression) // errors are of levels that there are not, and of the buffer
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// Extra is one field of an entry's extra ones.
func Extra(id uint16, data []byte) []byte {
	var out bytes.Buffer
	put(&out, id, uint16(len(data)), data)
	return out.Bytes()
}

// Renamed is the extra field with a name in Unicode (Info-ZIP) that stands for another.
func Renamed(name, into string) []byte {
	var out bytes.Buffer
	put(&out, uint8(1), crc32.ChecksumIEEE([]byte(name)), []byte(into))
	return Extra(0x7075, out.Bytes())
}
