package policy

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// lookup maps and checks what is not plain ASCII (UTS 46, not transitional).
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(true))

// NormalizeName returns the one form in which a domain name is compared,
// asked for and logged: lower case, punycode, no trailing dot. A name is at
// most 253 bytes of labels of 1 to 63 letters, digits and inner hyphens
// (RFC 1123). Underscores, wildcards and everything that some resolver takes
// for an IPv4 address (127.1, 0x7f.1, 2130706433) are refused. It is
// idempotent, and the only normaliser: policy, DNS and TLS names all pass it.
func NormalizeName(s string) (string, error) {
	if len(s) > 1024 {
		return "", bad("", "a name of %d bytes is too long", len(s))
	}
	name := s
	if !plain(s) {
		ascii, err := lookup.ToASCII(s)
		again, err2 := lookup.ToASCII(ascii)
		if err != nil || err2 != nil || again != ascii || !utf8.ValidString(s) {
			return "", bad("", "%s is not a domain name", show(s))
		}
		name = ascii
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", bad("", "%s is not a domain name: it has %d bytes, not 1 to 253", show(s), len(name))
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if err := checkHostLabel(l); err != nil {
			return "", bad(err.hint, "%s is not a domain name: %s", show(s), err.message)
		}
	}
	if numeric(labels[len(labels)-1]) {
		return "", bad("write addresses under cidrs", "%s is read as an address by some programs", show(s))
	}
	return name, nil
}

// plain tells whether s needs no mapping: ASCII without punycode. The IDNA
// tables refuse real names such as r3---sn-x.example.com.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return !strings.Contains(strings.ToLower(s), "xn--")
}

func checkHostLabel(l string) *problem {
	switch {
	case l == "":
		return &problem{"a label is empty", ""}
	case len(l) > 63:
		return &problem{"a label is longer than 63 bytes", ""}
	case l[0] == '-' || l[len(l)-1] == '-':
		return &problem{"a label begins or ends with a hyphen", ""}
	}
	for _, c := range l {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-':
		case c == '_':
			return &problem{"an underscore is not allowed in a host name", ""}
		case c == '*':
			return &problem{"a wildcard stands alone before the first dot", "write *.example.com"}
		case c == ':' || c == '/':
			return &problem{"it is an address or a URL", "write the host name alone; ports go under ports"}
		default:
			return &problem{"only letters, digits, hyphens and dots are allowed", ""}
		}
	}
	return nil
}

// numeric tells whether a last label makes the whole name an IPv4 address to
// inet_aton(3) or to the WHATWG URL parser.
func numeric(l string) bool {
	if hex, ok := strings.CutPrefix(l, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(l, "0123456789") == ""
}

// NormalizePattern returns the normal form of a name, of "*.name" (every name
// at any depth below name, not name itself) or of "*" (every name).
func NormalizePattern(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	if rest, ok := strings.CutPrefix(s, "*."); ok {
		name, err := NormalizeName(rest)
		if err == nil && len(name) > 251 {
			err = bad("", "%s is too long", show(s))
		}
		return "*." + name, err
	}
	return NormalizeName(s)
}

// MatchName tells whether the normal name is one that pattern names.
func MatchName(pattern, name string) bool {
	if pattern == "*" || pattern == name {
		return true
	}
	suffix, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasSuffix(name, suffix) && len(name) > len(suffix)
}

// covers tells whether every name that pattern b names, a names too.
func covers(a, b string) bool {
	if a == "*" || a == b {
		return true
	}
	// *.x.org lies within *.org as the name x.org does; no wildcard lies
	// within a single name.
	return strings.HasPrefix(a, "*.") && b != "*" && MatchName(a, strings.TrimPrefix(b, "*."))
}

// public tells whether pattern reaches names of unrelated owners: everything,
// or everything below a public suffix (com, co.uk, github.io).
func public(pattern string) bool {
	rest, ok := strings.CutPrefix(pattern, "*.")
	if !ok {
		return pattern == "*"
	}
	suffix, _ := publicsuffix.PublicSuffix(rest)
	return suffix == rest
}
