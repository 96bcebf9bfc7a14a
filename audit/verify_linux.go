package audit

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
)

// Verify reads a log from its oldest record on, in little memory, and says whether it is as it was written, or where it is not any
// more. Others may append to it meanwhile. An error is only that it could not be read.
func Verify(dir string, opts VerifyOptions) (Report, error) {
	d, err := openFolder(dir, true)
	if err != nil {
		return Report{}, err
	}
	defer d.Close()
	return settled(func() (Report, error) { return verify(d, opts) })
}

// settled looks again where a writer may have changed what was being read. A segment that was listed may have become too old meanwhile. And damage
// is believed once it was seen twice: a line that a dying process began, or a batch that a full disk did not take, is cut off, and others stand in its
// place when the reader goes on; the log's first head may come between the look for it and the look at the log.
func settled(look func() (Report, error)) (Report, error) {
	var seen *Broken
	for tries := 0; ; tries++ {
		report, err := look()
		b := report.Broken
		again := errors.Is(err, errRemoved) || err == nil && b != nil && (seen == nil || *seen != *b)
		if !again || tries == 3 {
			return report, err
		}
		seen = b
	}
}

// errRemoved is a segment that went away while it was looked for.
var errRemoved = errors.New("audit: a segment was removed meanwhile")

func verify(d *folder, opts VerifyOptions) (Report, error) {
	v := &verifier{}
	if err := v.begin(d, opts); err != nil {
		return v.Report, err
	}
	// After the head: what it says must be there already.
	segments, err := d.segments()
	if err != nil {
		return v.Report, err
	}
	if v.Broken == nil {
		v.src = &lines{dir: d, segments: segments}
		err = v.run()
		if err2 := v.src.close(); err == nil {
			err = err2
		}
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errRemoved, err)
		}
	}
	v.Whole = err == nil && v.Broken == nil
	return v.Report, err
}

// begin reads the key and the heads.
func (v *verifier) begin(d *folder, opts VerifyOptions) error {
	public := opts.Key
	if len(public) == 0 {
		var err error
		if public, err = d.read(publicFile); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("audit: %s: there is no log: %s is missing", d.path, publicFile)
			}
			return err
		}
	}
	half, err := parseKey(string(public))
	if err != nil {
		return fmt.Errorf("audit: %s: %w", publicFile, err)
	}
	v.key = ed25519.PublicKey(half)
	v.Key = keyID(v.key)
	if err := v.readHead(d); err != nil {
		return err
	}
	if len(opts.Head) == 0 {
		return nil
	}
	v.expLine, _, _ = bytes.Cut(opts.Head, []byte("\n"))
	e, _, err := readCheckpoint(v.expLine, v.key)
	switch {
	case errors.Is(err, ErrForeignKey), errors.Is(err, ErrSignature):
		v.Broken = &Broken{Segment: publicFile, Seq: e.Seq, Damage: ForeignKey, Why: "the exported head is signed with another key: this is not the log that it was exported from"}
	case err != nil:
		return fmt.Errorf("audit: the exported head is none: %w", err)
	default:
		v.exported = &header{seq: e.Seq}
	}
	return nil
}

// readHead reads the directory's head. What is wrong with it is told after all records were looked at.
func (v *verifier) readHead(d *folder) error {
	// The first one has another name until its checkpoint is there; it may get its own between two looks.
	for _, name := range []string{headFile, firstHead, headFile} {
		text, err := d.read(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		h, seq, err := v.decode(text)
		switch {
		case name == headFile:
			v.head, v.headSeq, v.badHead = h, seq, err
		case err == nil:
			v.first = h.line
		}
		return nil
	}
	return nil
}

// decode reads a head that the key has signed.
func (v *verifier) decode(text []byte) (*head, uint64, error) {
	h, err := decodeHead(text)
	if err != nil {
		return nil, 0, err
	}
	e, c, err := readCheckpoint(h.line, v.key)
	if err == nil {
		_, err = h.tree(c)
	}
	if err != nil {
		return nil, 0, err
	}
	return h, e.Seq, nil
}

// Head returns the newest checkpoint's line, with its newline: whoever keeps it elsewhere can later tell whether the log was changed
// up to there, whoever did it.
func Head(dir string) ([]byte, error) {
	d, err := openFolder(dir, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	text, err := d.read(headFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("audit: %s: there is no head: nothing was recorded yet", dir)
	}
	if err != nil {
		return nil, err
	}
	h, err := decodeHead(text)
	if err != nil {
		return nil, err
	}
	return append(h.line, '\n'), nil
}
