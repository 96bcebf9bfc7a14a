package policy

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// load checks the bytes and composes the one document; nil after an error.
func (r *reader) load(data []byte) *yaml.Node {
	if len(data) > r.most {
		r.failAt(Position{r.file, 1, 1}, "", bad("", "the file is larger than %d KiB", r.most>>10))
		return nil
	}
	if !r.bytes(data) {
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		r.failAt(Position{r.file, 1, 1}, "", err)
		return nil
	}
	var first, second yaml.Node
	if err := loader.Load(&first); err != nil {
		r.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case err == nil:
		r.failAt(Position{r.file, second.Line, second.Column}, "",
			bad("a policy is one document", "a second document begins here"))
		return nil
	case !errors.Is(err, io.EOF):
		r.syntax(err)
		return nil
	}
	return first.Content[0]
}

// bytes refuses what an editor would not show as what it is.
func (r *reader) bytes(data []byte) bool {
	line, start := 1, 0
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		why := ""
		switch {
		case i == 0 && (bytes.HasPrefix(data, []byte{0xFE, 0xFF}) || bytes.HasPrefix(data, []byte{0xFF, 0xFE})):
			why = "the file is UTF-16"
		case c == 0xFEFF:
			why = "a byte order mark is not allowed"
		case c == utf8.RuneError && size == 1:
			why = "the file is not valid UTF-8"
		case c == 0:
			why = "a NUL byte is not allowed"
		case c == '\r' && (i+1 == len(data) || data[i+1] != '\n'):
			why = "a carriage return without a line feed is not allowed"
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c >= 0x7F && c < 0xA0, c == 0x2028, c == 0x2029:
			why = "a control character is not allowed"
		}
		if why != "" {
			column := utf8.RuneCount(data[start:i]) + 1
			r.failAt(Position{r.file, line, column}, "", bad("save the file as UTF-8 text", "%s", why))
			return false
		}
		if i += size; c == '\n' {
			line, start = line+1, i
		}
	}
	return true
}

// syntax passes on the YAML library's own complaint, with its place.
func (r *reader) syntax(err error) {
	if errors.Is(err, io.EOF) {
		r.failAt(Position{r.file, 1, 1}, "", bad("begin with version: 1", "the file holds no policy"))
		return
	}
	at, message := Position{r.file, 1, 1}, err.Error()
	var load *yaml.LoadError
	if errors.As(err, &load) {
		message = load.Message
		if load.ContextMsg != "" {
			message += " " + load.ContextMsg
		}
		if load.Mark.Line > 0 && load.Mark.Column > 0 {
			at.Line, at.Column = load.Mark.Line, load.Mark.Column
		}
	}
	hint := ""
	if strings.Contains(message, "cannot start any token") {
		hint = "indent with spaces, not with tabs"
	}
	r.failAt(at, "", bad(hint, "not YAML: %s", message))
}
