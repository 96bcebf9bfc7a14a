// Package trust says how far a bundle is to be believed: by what it is, and by whose signature says that it is that. It touches nothing
// but its arguments.
//
// A signature is minisign's (https://jedisct1.github.io/minisign/), of a statement that binds a bundle to a policy. The statement is
// not kept anywhere: whoever verifies writes it anew from what is there.
package trust

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"aead.dev/minisign"
)

// Suffix is what the name of a signature's file has behind that of the bundle's directory, beside which it lies.
const Suffix = ".skillbox.minisig"

// MaxSignature is the size in bytes of the longest file that is read as a signature: minisign's comments are up to 8 KiB each.
const MaxSignature = 20 << 10

// Statement is what a signature says: that this bundle may run under this policy.
type Statement struct {
	Name   string // the bundle's own; may be empty
	Bundle string // its digest
	Policy string // digest of the operator's policy, as its file says it; of the defaults where there is none
}

// Bytes are what is signed. Digests have one length and names no line break, so that no two statements are the same bytes.
func (s Statement) Bytes() []byte {
	return fmt.Appendf(nil, "skillbox-statement-v1\nbundle %s\npolicy %s\nname %s\n", s.Bundle, s.Policy, s.Name)
}

// Comment is the trusted comment of a signature of it, for people who verify by minisign.
func (s Statement) Comment(when string) string {
	return fmt.Sprintf("skillbox bundle %s policy %s signed %s", s.Bundle, s.Policy, when)
}

// ParseKey reads a public key: the line that minisign prints, or the whole of its .pub file.
func ParseKey(text string) (key minisign.PublicKey, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[0], "untrusted comment:") {
		return key, fmt.Errorf("trust: not a public key of minisign's")
	}
	line := lines[len(lines)-1]
	if err := key.UnmarshalText([]byte(line)); err != nil || key.String() != line {
		return minisign.PublicKey{}, fmt.Errorf("trust: not a public key of minisign's")
	}
	return key, nil
}

// KeyID is the id of a key as minisign prints it. Ids are chosen by whoever makes a key: they tell keys apart for people, and prove nothing.
func KeyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// Signature is a file that was read; nothing in it is believed yet.
type Signature struct {
	KeyID uint64
	text  []byte
}

// ParseSignature reads a signature's file. It takes what minisign writes and nothing more: no line behind it, no other line ends, no
// signature of the older kind, which signs a message of any length without hashing it first.
func ParseSignature(text []byte) (*Signature, error) {
	var s minisign.Signature
	if len(text) > MaxSignature {
		return nil, fmt.Errorf("the signature is longer than %d bytes", MaxSignature)
	}
	if err := s.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("this is no signature of minisign's: %s", strings.TrimPrefix(err.Error(), "minisign: "))
	}
	// base64 may be written in several ways, and line breaks in it are passed over.
	if again, err := s.MarshalText(); err != nil || !bytes.Equal(again, text) {
		return nil, fmt.Errorf("this is a signature of minisign's with something beside it")
	}
	if s.Algorithm != minisign.HashEdDSA {
		return nil, fmt.Errorf("this is a signature of minisign's older kind, which is not taken: sign again by minisign 0.10 or newer, or by `skillbox bundle sign`")
	}
	return &Signature{KeyID: s.KeyID, text: text}, nil
}

// By says whether the key has signed the statement.
func (s *Signature) By(key minisign.PublicKey, statement Statement) bool {
	return hashed(statement).Verify(key, s.text)
}

// hashed is a statement read to its end: signatures are of its hash.
func hashed(statement Statement) *minisign.Reader {
	r := minisign.NewReader(bytes.NewReader(statement.Bytes()))
	_, _ = io.Copy(io.Discard, r) // neither end can fail
	return r
}

// Comment is the trusted comment, to be shown once By has said so.
func (s *Signature) Comment() string {
	var parsed minisign.Signature
	if err := parsed.UnmarshalText(s.text); err != nil {
		return "" // ParseSignature has taken it
	}
	return parsed.TrustedComment
}

// Sign signs the statement; when is told in the trusted comment.
func Sign(key minisign.PrivateKey, statement Statement, when string) []byte {
	return hashed(statement).SignWithComments(key, statement.Comment(when), "signature of a skillbox bundle by "+KeyID(key.ID()))
}
