package unzip

import (
	"archive/zip"
	"bufio"
	"compress/flate"
	"errors"
	"io"
)

// errRest says that an entry's data goes on after its deflate stream has ended.
var errRest = errors.New("unzip: more data than the stream has")

// inflated is a deflate stream that must be all that there is. A stream says itself where it ends. A program that reads an archive from its
// beginning goes by that and looks for the next header there, while archive/zip leaves out whatever else the directory counts as packed.
type inflated struct {
	io.ReadCloser
	packed *bufio.Reader
}

// inflate has the form of a zip.Decompressor; packed must end where the entry's data does.
func inflate(packed io.Reader) io.ReadCloser {
	from := bufio.NewReader(packed) // as an io.ByteReader, of which flate reads no byte more than it needs
	return &inflated{flate.NewReader(from), from}
}

func (i *inflated) Read(b []byte) (int, error) {
	n, err := i.ReadCloser.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	switch _, rest := i.packed.ReadByte(); {
	case rest == nil:
		return n, errRest
	case !errors.Is(rest, io.EOF):
		return n, rest
	}
	return n, io.EOF
}

// checkEmpty looks at a directory's data. archive/zip opens none, and some programs (Java's among them) pack directories as they pack files.
func checkEmpty(f *zip.File) error {
	if f.Method == zip.Store {
		return nil // its two sizes are one, and that is zero
	}
	raw, err := f.OpenRaw()
	if err != nil {
		return faulty(f.Name, err)
	}
	from := inflate(raw)
	defer from.Close()
	switch n, err := io.CopyN(io.Discard, from, 1); {
	case n > 0:
		return refuse(f.Name, "", "is a directory with content")
	case !errors.Is(err, io.EOF):
		return faulty(f.Name, err)
	}
	return nil
}
