package hello

import "bytes"

// Kind is what the first bytes of a connection look like.
type Kind int

const (
	Undecided Kind = iota // more bytes are needed
	KindTLS               // to be read by TLS
	KindHTTP              // to be read by HTTP
	Other
)

// maxSniff is where a first line that never ends is no longer waited for.
const maxSniff = 4096

// Sniff tells TLS and HTTP from the rest. In doubt it is one of them, whose reader refuses what is not in order: what some server
// takes for TLS or HTTP must not pass as something else, whose name is not looked at.
func Sniff(first []byte) Kind {
	switch {
	case len(first) == 0:
		return Undecided
	case first[0] >= 20 && first[0] <= 24: // a TLS record of any type: some servers skip warnings before the hello
		return tlsIf(first, 1, func(major byte) bool { return major < 0x10 }) // crypto/tls looks no closer; not every server does
	case first[0]&0x80 != 0: // the hello of SSL 2, which OpenSSL still takes for TLS (RFC 5246 appendix E.2)
		return tlsIf(first, 2, func(message byte) bool { return message == 1 })
	}
	return sniffLine(first)
}

func tlsIf(first []byte, at int, is func(byte) bool) Kind {
	switch {
	case len(first) <= at:
		return Undecided
	case is(first[at]):
		return KindTLS
	}
	return Other
}

// sniffLine looks for an HTTP request line: a method and a target, or a version. Servers skip empty lines before it (RFC 9112 section
// 2.2), and forgive odd methods and blanks.
func sniffLine(first []byte) Kind {
	line, _, whole := bytes.Cut(bytes.TrimLeft(first, "\r\n"), []byte("\n"))
	method, target, _ := bytes.Cut(bytes.ReplaceAll(line, []byte("\t"), []byte(" ")), []byte(" "))
	target = bytes.TrimLeft(target, " ")
	switch {
	case bytes.Contains(line, []byte("HTTP/")):
		return KindHTTP
	case len(line) > 0 && !isToken(string(line[:1])) || bytes.ContainsFunc(bytes.TrimSuffix(line, []byte("\r")), isControl):
		return Other
	case isToken(string(method)) && (bytes.HasPrefix(target, []byte("/")) || bytes.HasPrefix(target, []byte("*")) || bytes.Contains(target, []byte("://"))):
		return KindHTTP
	case whole:
		return Other
	case len(first) >= maxSniff:
		return KindHTTP
	}
	return Undecided
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
