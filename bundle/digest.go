package bundle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"path"
	"slices"
	"strings"
	"time"
)

// Limits bounds a bundle. Zero means the default, 10,000 files and 512 MiB; there is no way to say unlimited.
type Limits struct {
	Files int   // regular files and links; directories may be as many again
	Bytes int64 // of the regular files' contents
}

// The defaults of Limits, and what no flag changes.
const (
	DefaultFiles       = 10_000
	DefaultBytes int64 = 512 << 20

	maxPath  = 4096
	maxNests = 64
)

func (l Limits) orDefault() Limits {
	if l.Files <= 0 {
		l.Files = DefaultFiles
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	return l
}

// Tree is what Digest found.
type Tree struct {
	Digest string // "sha256:" and 64 hexadecimal digits
	Files  int    // regular files and links
	Bytes  int64  // of the regular files' contents
	Cached int    // regular files whose content was not read, because the cache knew it
	// Changed is a moment after the last change of anything in it, as far as ctime tells. It is zero where that is somebody else's clock:
	// on a network.
	Changed time.Time
}

// entry is one file, directory or link below the root.
type entry struct {
	path   string
	typ    byte              // 'd', 'f' or 'l'
	mode   uint16            // permission bits, 0 for a link
	size   uint64            // of an 'f'
	hash   [sha256.Size]byte // of an 'f'
	target string            // of an 'l'
	stamp  stamp             // of an 'f'
	fresh  bool              // an 'f' whose stamp may be cached
}

// sum computes the digest of a tree. Its entries must be sorted by path, bytewise.
//
// The bytes that are hashed with SHA-256, numbers in big-endian order:
//
//	"skillbox-tree-v1\n"
//	uint32 number of entries
//	each entry below the root (the root's own name and mode are not part of the bundle), ascending by path, bytewise:
//	    byte   'd' directory, 'f' regular file, 'l' symbolic link
//	    uint16 mode & 07777; 0 for a link, whose mode means nothing
//	    uint16 length of the path, the path: names joined by '/', none before the first
//	    'f':   uint64 size, 32 bytes SHA-256 of the content
//	    'l':   uint16 length of the target, the target
//
// Every length comes before what it measures, so two different trees never yield the same bytes. Times, owners and extended
// attributes are not part of it: a bundle unpacked twice is the same bundle.
func sum(entries []*entry) string {
	h := sha256.New()
	buf := make([]byte, 0, 64<<10)
	buf = append(buf, "skillbox-tree-v1\n"...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(entries)))
	for _, e := range entries {
		if len(buf) > cap(buf)-2*maxPath-64 {
			buf = flush(h, buf)
		}
		buf = e.append(buf)
	}
	flush(h, buf)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func flush(h hash.Hash, buf []byte) []byte {
	h.Write(buf)
	return buf[:0]
}

func (e *entry) append(buf []byte) []byte {
	buf = append(buf, e.typ)
	buf = binary.BigEndian.AppendUint16(buf, e.mode)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(e.path)))
	buf = append(buf, e.path...)
	switch e.typ {
	case 'f':
		buf = binary.BigEndian.AppendUint64(buf, e.size)
		buf = append(buf, e.hash[:]...)
	case 'l':
		buf = binary.BigEndian.AppendUint16(buf, uint16(len(e.target)))
		buf = append(buf, e.target...)
	}
	return buf
}

// maxSteps bounds the work of following all links of a bundle to some milliseconds: links that lead through links can ask for far more
// steps than they have bytes.
const maxSteps = 1_000_000

// checkLinks refuses links that lead out of the tree, also by way of other links, and those that lead in circles. entries are all of
// the tree, sorted by path. A link to what is not there leads nowhere, and is let be.
func checkLinks(entries []*entry) error {
	steps := maxSteps
	for _, e := range entries {
		if e.typ != 'l' {
			continue
		}
		if why := follow(entries, e, &steps); why != "" {
			return refuse(e.path, why, "a link must be relative and stay inside the bundle; `cp -rL` replaces links by what they lead to")
		}
	}
	return nil
}

// follow resolves one link as if the bundle's root were all there is, and says why it must not be followed, "" when it may.
func follow(entries []*entry, link *entry, steps *int) string {
	if path.IsAbs(link.target) {
		return fmt.Sprintf("is a link to the absolute path \"%s\"", escape(link.target))
	}
	at, rest := dirOf(link.path), link.target
	for links := 1; rest != ""; {
		if *steps -= 1 + len(rest)>>6; *steps < 0 {
			return "is one of too many links that lead through links"
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return fmt.Sprintf("is a link that leads out of the bundle, to \"%s\"", escape(link.target))
			}
			at = dirOf(at)
			continue
		}
		next := inDir(at, name)
		via := find(entries, next)
		if via == nil || via.typ != 'l' {
			at = next
			continue
		}
		// Forty is the kernel's own limit, path_resolution(7).
		if links++; links > 40 {
			return "is a link that leads in circles"
		}
		if path.IsAbs(via.target) {
			return fmt.Sprintf("is a link by way of a link to the absolute path \"%s\"", escape(via.target))
		}
		rest = via.target + "/" + rest
	}
	return ""
}

func find(entries []*entry, p string) *entry {
	i, ok := slices.BinarySearchFunc(entries, p, func(e *entry, p string) int { return strings.Compare(e.path, p) })
	if !ok {
		return nil
	}
	return entries[i]
}

// dirOf returns the directory of a path in the bundle, "" for the root.
func dirOf(p string) string { return p[:max(strings.LastIndexByte(p, '/'), 0)] }

// inDir joins a directory, "" for the root, and one name.
func inDir(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
