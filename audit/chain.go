package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A log is lines in numbered segments. Every line holds the hash of the line before it, across segments. Checkpoints are lines that sign:
// the Merkle root of their segment so far, and through the line's own hash of the line before everything that came before.

type hash [sha256.Size]byte

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// isHash tells whether a text is written as String writes a hash.
func isHash(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

// hashLine is what the next line's prev holds.
func hashLine(line []byte) hash { return sha256.Sum256(line) }

// tree is the Merkle tree of RFC 6962, section 2.1, as far as one needs it to go on and to tell the root: the roots of the perfect
// subtrees that its leaves make, the largest first. The zero value is the empty tree.
type tree struct {
	lines uint64
	roots []hash
}

func (t *tree) add(line []byte) {
	leaf := sha256.New()
	leaf.Write([]byte{0})
	leaf.Write(line)
	var h hash
	leaf.Sum(h[:0])
	for n := t.lines; n&1 == 1; n >>= 1 {
		last := len(t.roots) - 1
		h = node(t.roots[last], h)
		t.roots = t.roots[:last]
	}
	t.roots = append(t.roots, h)
	t.lines++
}

func node(left, right hash) hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

func (t *tree) root() hash {
	if len(t.roots) == 0 {
		return sha256.Sum256(nil)
	}
	h := t.roots[len(t.roots)-1]
	for i := len(t.roots) - 2; i >= 0; i-- {
		h = node(t.roots[i], h)
	}
	return h
}

// header is what the chain needs of a line.
type header struct {
	seq  uint64
	prev string
	kind Kind
}

// readHeader reads the beginning of a line without reading it as JSON; the rest may be anything.
func readHeader(line []byte) (h header, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"v":1,"seq":`))
	digits, rest, ok2 := bytes.Cut(rest, []byte(`,"prev":"`))
	if !ok || !ok2 || len(digits) == 0 || digits[0] == '0' {
		return h, errors.New("it does not begin as a record does")
	}
	if h.seq, err = strconv.ParseUint(string(digits), 10, 63); err != nil {
		return h, errors.New("its number is none")
	}
	const after = `","time":"`
	if len(rest) < 2*sha256.Size || !bytes.HasPrefix(rest[2*sha256.Size:], []byte(after)) {
		return h, errors.New("it does not hold the hash of the line before")
	}
	h.prev = string(rest[:2*sha256.Size])
	_, rest, ok = bytes.Cut(rest, []byte(`,"kind":"`))
	kind, _, ok2 := bytes.Cut(rest, []byte(`"`))
	if !ok || !ok2 || newDetail(Kind(kind)) == nil {
		return h, errors.New("it is of no known kind")
	}
	h.kind = Kind(kind)
	return h, nil
}

const signedContext = "skillbox audit checkpoint 1\n"

// signedPart is what a checkpoint's signature is over: the whole line up to the signature.
func signedPart(line []byte) []byte {
	at := bytes.LastIndex(line, []byte(`,"sig":"`))
	if at < 0 {
		return nil
	}
	return append([]byte(signedContext), line[:at]...)
}

// keyID names a public key.
func keyID(public ed25519.PublicKey) string { return hash(sha256.Sum256(public)).String() }

// readCheckpoint reads a line as a checkpoint that this key has signed.
func readCheckpoint(line []byte, key ed25519.PublicKey) (Event, Checkpoint, error) {
	e, err := Parse(line)
	if err != nil {
		return e, Checkpoint{}, err
	}
	c, ok := e.Detail.(Checkpoint)
	if !ok {
		return e, c, fmt.Errorf("audit: a record of kind %s instead of a checkpoint", e.Kind)
	}
	if c.Key != keyID(key) {
		return e, c, fmt.Errorf("%w: the checkpoint is signed with key %.16s…, the log's key is %.16s…", ErrForeignKey, c.Key, keyID(key))
	}
	sig, err := hex.DecodeString(c.Sig)
	if err != nil || hex.EncodeToString(sig) != c.Sig || !ed25519.Verify(key, signedPart(line), sig) {
		return e, c, ErrSignature
	}
	return e, c, nil
}

// sign completes a checkpoint's line.
func sign(e *Event, c Checkpoint, key ed25519.PrivateKey) ([]byte, error) {
	c.Sig = hex.EncodeToString(make([]byte, ed25519.SignatureSize))
	e.Detail = c
	line, err := encode(e)
	if err != nil {
		return nil, err
	}
	c.Sig = hex.EncodeToString(ed25519.Sign(key, signedPart(line)))
	e.Detail = c
	return encode(e)
}

// Errors that a checkpoint may have.
var (
	ErrSignature  = errors.New("audit: the signature is not of this key over this record")
	ErrForeignKey = errors.New("audit: foreign key")
)
