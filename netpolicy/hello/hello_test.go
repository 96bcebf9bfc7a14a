package hello

import "testing"

// The server compares the client's bytes: a normaliser that changes more than their case has seen another name.
func TestANameIsWhatTheServerReads(t *testing.T) {
	for raw, normal := range map[string]string{"a.example": "b.example", "a.example..": "a.example", "xn--a.example": "a.example"} {
		if name, err := nameOf(raw, func(string) (string, error) { return normal, nil }); err == nil {
			t.Errorf("%s passes as %s", raw, name)
		}
	}
}
