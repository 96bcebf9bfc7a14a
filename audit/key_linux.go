package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openKey returns the log's key. It makes one only where there is neither a key nor anything that one has signed: a log whose key is
// gone is not continued with another. The caller holds the lock.
func openKey(d *folder) (ed25519.PrivateKey, error) {
	seed, err := readKey(d, keyFile)
	if errors.Is(err, os.ErrNotExist) {
		return makeKey(d)
	}
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	public, err := readKey(d, publicFile)
	if errors.Is(err, os.ErrNotExist) {
		// Whoever made the key did not come further; or somebody removed what the key itself tells.
		return key, writeKey(d, publicFile, key.Public().(ed25519.PublicKey))
	}
	if err != nil {
		return nil, err
	}
	if !key.Public().(ed25519.PublicKey).Equal(ed25519.PublicKey(public)) {
		return nil, fmt.Errorf("audit: %s: key.pub is not of key: put back the one that belongs to the other, or move the directory away to begin a new log", d.path)
	}
	return key, nil
}

func makeKey(d *folder) (ed25519.PrivateKey, error) {
	segments, err := d.segments()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{publicFile, headFile} {
		there, err := d.has(name)
		if err != nil {
			return nil, err
		}
		if there || len(segments) > 0 {
			return nil, fmt.Errorf("audit: %s: there is a log, but not its key: put the file `key` back, or move the directory away to begin a new log", d.path)
		}
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("audit: make a key: %w", err)
	}
	if err := writeKey(d, keyFile, key.Seed()); err != nil {
		return nil, err
	}
	return key, writeKey(d, publicFile, public)
}

func writeKey(d *folder, name string, half []byte) error {
	if err := d.replace(name, fmt.Appendf(nil, "ed25519 %x\n", half), true); err != nil {
		return err
	}
	if err := unix.Fsync(int(d.Fd())); err != nil { // a log without its key would be of no use
		return &os.PathError{Op: "audit: sync", Path: d.path, Err: err}
	}
	return nil
}

// readKey reads one half: 32 bytes in hex.
func readKey(d *folder, name string) ([]byte, error) {
	text, err := d.read(name)
	if err != nil {
		return nil, err
	}
	half, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("audit: %s/%s: %w", d.path, name, err)
	}
	return half, nil
}

func parseKey(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "ed25519 ")
	half, err := hex.DecodeString(strings.TrimSuffix(digits, "\n"))
	if !ok || err != nil || len(half) != ed25519.PublicKeySize || fmt.Sprintf("ed25519 %x\n", half) != text {
		return nil, errors.New("it is no key: one line, ed25519 and 64 hexadecimal digits")
	}
	return half, nil
}
