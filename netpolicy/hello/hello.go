// Package hello reads the name that a client asks for from the first bytes of a connection. It decides nothing about the name, and
// refuses whatever a server might read otherwise than it does. It is pure over an io.Reader: the caller sets the deadlines.
package hello

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoName is wrapped where a client names no server at all.
var ErrNoName = errors.New("the client names no server")

// OtherHost is a request for another server than the one that the connection was made for.
type OtherHost struct{ Name, Checked string }

func (e *OtherHost) Error() string {
	return fmt.Sprintf("the client asks for %s on a connection to %s", e.Name, e.Checked)
}

// nameOf returns the normal form of a name as a client wrote it. The server gets the client's bytes and not the normal form, so nothing
// but letter case and the final dot may differ: no name that still has to be mapped (RFC 6066 section 3 and RFC 9110 section 4.2.3
// know ASCII only).
func nameOf(raw string, normalize func(string) (string, error)) (string, error) {
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f {
			return "", fmt.Errorf("the client asks for %.80q, which is not a name: it is not printable ASCII", raw)
		}
	}
	name, err := normalize(raw)
	if err != nil {
		return "", fmt.Errorf("the client asks for %.80q, which is not a name: %w", raw, err)
	}
	if name != strings.ToLower(strings.TrimSuffix(raw, ".")) {
		return "", fmt.Errorf("the client asks for %.80q, which is not the form of %s that servers compare", raw, name)
	}
	return name, nil
}
