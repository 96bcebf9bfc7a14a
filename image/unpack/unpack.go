// Package unpack puts images into a store: layers, which are tar streams that strangers made, become directories, and layers one above the
// other become an image's tree.
//
// Nothing but plain files, directories, links and their names, contents, times and execute bits comes out of a layer. Every path is walked
// from a descriptor of the layer's own directory, beneath it and through no symbolic link (openat2(2)).
package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Limits bound what one image may unpack to. Zero is the default.
type Limits struct {
	Bytes   int64 // of all files, and of all tar streams; DefaultBytes
	Entries int64 // in all layers; DefaultEntries
	Ratio   int64 // tar bytes for each compressed byte, in a layer above ratioFrom; DefaultRatio
}

// The defaults hold the largest images that are about (CUDA with a framework has 10 to 20 GB and 300,000 entries); gzip gets to 1,000 times.
const (
	DefaultBytes   = 32 << 30
	DefaultEntries = 2_000_000
	DefaultRatio   = 200
)

// ratioFrom is what a layer may grow to whatever its ratio: small layers of zeros are common.
const ratioFrom = 64 << 20

const (
	maxName  = 4095 // PATH_MAX without its NUL
	maxPart  = 255  // NAME_MAX
	maxDepth = 128  // of directories: each takes a descriptor when a tree is walked
)

// Refusal says which entry of a layer was refused, and why.
type Refusal struct{ Entry, Why string }

func (r *Refusal) Error() string { return fmt.Sprintf("entry %q: %s", shorten(r.Entry), r.Why) }

func shorten(name string) string {
	if len(name) > 200 {
		return name[:200] + "…"
	}
	return name
}

func refuse(entry, format string, a ...any) error { return &Refusal{entry, fmt.Sprintf(format, a...)} }

// clean is the path of an entry below the root: "." for the root itself. A leading slash means nothing, as to tar(1).
func clean(name string) (string, error) {
	if len(name) > maxName {
		return "", errors.New("its name is longer than 4095 bytes")
	}
	if strings.ContainsRune(name, 0) {
		return "", errors.New("its name holds a NUL")
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	for _, p := range parts {
		if p == ".." {
			return "", errors.New("its name holds .. as a part")
		}
		if len(p) > maxPart {
			return "", errors.New("a part of its name is longer than 255 bytes")
		}
	}
	if len(parts) > maxDepth {
		return "", fmt.Errorf("it lies deeper than %d directories", maxDepth)
	}
	return path.Join(append([]string{"."}, parts...)...), nil
}

// whiteout is the prefix of entries that take a lower layer's away, opaque the entry that takes away all of a directory's, see "Whiteouts" in
// the OCI image specification. Other names with reserved were AUFS's own and mean nothing.
const (
	whiteout = ".wh."
	reserved = ".wh..wh."
	opaque   = ".wh..wh..opq"
)

// removal is what a layer takes away from those below it.
type removal struct {
	path   string
	opaque bool // all that is in it, and not it
}

// removalOf reads an entry that may be a whiteout. ignored is one that means nothing.
func removalOf(name string) (r *removal, ignored bool, err error) {
	dir, base := path.Split(name)
	if strings.Contains("/"+dir, "/"+whiteout) {
		return nil, false, errors.New("it lies below a whiteout")
	}
	switch {
	case base == opaque:
		return &removal{path.Clean(dir), true}, false, nil
	case strings.HasPrefix(base, reserved):
		return nil, true, nil
	case strings.HasPrefix(base, whiteout):
		gone := base[len(whiteout):]
		if gone == "" || gone == "." || gone == ".." {
			return nil, false, errors.New("it is a whiteout of no name")
		}
		return &removal{path.Join(dir, gone), false}, false, nil
	}
	return nil, false, nil
}

// kindOf names what never comes into a store.
func kindOf(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "device node"
	case tar.TypeFifo:
		return "FIFO"
	}
	return ""
}
