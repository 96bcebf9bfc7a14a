package bundle

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// BadName says why a name cannot be an entry of a bundle, "" when it can. Beyond what would hide in a listing it refuses what another
// system, or a program that is handed names, reads as something else than a name: a bundle is unpacked on many machines.
func BadName(name string) string {
	switch {
	case name == "", name == ".", name == "..":
		return "is not a file name"
	case !utf8.ValidString(name):
		return "the name is not valid UTF-8"
	case name[0] == '-':
		return "the name begins with a dash and would be taken for an option"
	case strings.IndexByte(name, '\\') >= 0:
		return "the name contains a backslash, which other systems read as a path"
	case len(name) >= 2 && name[1] == ':' && isLetter(name[0]):
		return "the name begins with a drive letter, which other systems read as a path"
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return "the name contains a control character"
		}
		if r >= 0x2028 && (r <= 0x202e || r >= 0x2066 && r <= 0x2069) {
			return "the name contains a character that reorders or breaks a line of text"
		}
	}
	return ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// plainName tells that FoldName(name) == name without computing it, which holds for most names.
func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// FoldName maps names that some file system takes for the same to one string: simple case folding (NTFS, exFAT, APFS, ext4 casefold)
// over the canonical decomposition (HFS+, APFS). It does not fold ß to ss, which none of them does.
func FoldName(name string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(name) {
		b.WriteRune(foldRune(r))
	}
	return norm.NFC.String(b.String())
}

// foldRune picks one rune for a whole orbit of case variants: for letters of ASCII the lower case.
func foldRune(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r | 0x20
	}
	if 'a' <= r && r <= 'z' {
		return r
	}
	least := r
	for v := unicode.SimpleFold(r); v != r; v = unicode.SimpleFold(v) {
		least = min(least, v)
	}
	if 'A' <= least && least <= 'Z' {
		return least | 0x20
	}
	return least
}

// twins finds two names of one directory that a system which ignores case or normal forms would take for the same.
func twins(names []string) (a, b string, found bool) {
	odd := 0
	for _, n := range names {
		if !plainName(n) {
			odd++
		}
	}
	if odd == 0 {
		return "", "", false
	}
	seen := make(map[string]string, odd)
	for _, n := range names {
		if plainName(n) {
			continue
		}
		key := FoldName(n)
		if first, ok := seen[key]; ok {
			return first, n, true
		}
		seen[key] = n
	}
	for _, n := range names {
		if first, ok := seen[n]; ok && plainName(n) {
			return n, first, true
		}
	}
	return "", "", false
}
