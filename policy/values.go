package policy

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

var (
	decimal  = lazily(`^(0|[1-9][0-9]*)$`)
	fraction = lazily(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)
	sized    = lazily(`^(0|[1-9][0-9]*)([A-Za-z]*)$`)
)

// units in the order in which FormatSize prefers them.
var units = []struct {
	name  string
	bytes int64
}{
	{"Ti", 1 << 40},
	{"Gi", 1 << 30},
	{"Mi", 1 << 20},
	{"Ki", 1 << 10},
	{"T", 1e12},
	{"G", 1e9},
	{"M", 1e6},
	{"k", 1e3},
	{"", 1},
}

// ParseSize reads a number of bytes: "64Mi", "10M" or "4096". Ki, Mi, Gi and
// Ti are powers of 1024; k, M, G and T powers of 1000. Zero is refused.
func ParseSize(s string) (int64, error) {
	m := sized.FindStringSubmatch(s)
	if m == nil {
		return 0, bad("write 64Mi, 10M or a number of bytes", "%s is not a size", show(s))
	}
	for _, u := range units {
		if u.name != m[2] {
			continue
		}
		n, err := strconv.ParseInt(m[1], 10, 64)
		switch {
		case err != nil || n > math.MaxInt64/u.bytes:
			return 0, bad("", "%s is too large", show(s))
		case n == 0:
			return 0, bad("leave the key out for the default", "0 is refused: it is read as unlimited elsewhere")
		}
		return n * u.bytes, nil
	}
	hint := "the units are Ki, Mi, Gi, Ti (1024) and k, M, G, T (1000)"
	if m[2] == "K" {
		hint = "write Ki for 1024 or k for 1000"
	}
	return 0, bad(hint, "%s is not a unit of size", show(m[2]))
}

// FormatSize writes n as ParseSize reads it, exactly, in the largest unit that fits.
func FormatSize(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// parseDuration reads "30s", "1m30s" or "250ms", in whole milliseconds.
func parseDuration(s string) (time.Duration, error) {
	const hint = "write 30s, 1m30s or 250ms"
	if strings.Trim(s, "0123456789.hms") != "" {
		return 0, bad(hint, "%s is not a duration", show(s))
	}
	d, err := time.ParseDuration(s)
	if decimal.MatchString(s) && s != "0" {
		return 0, bad("write "+s+"s for seconds", "%s has no unit", s)
	}
	switch {
	case err != nil:
		return 0, bad(hint, "%s is not a duration", show(s))
	case d == 0:
		return 0, bad("leave the key out for the default", "0 is refused: it is read as unlimited elsewhere")
	case d%time.Millisecond != 0:
		return 0, bad("", "%s is finer than a millisecond", show(s))
	}
	return d, nil
}

// formatDuration writes d as parseDuration reads it, without empty units.
func formatDuration(d time.Duration) string {
	s := d.String()
	for _, empty := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, empty) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// parseCPU reads cores: "0.5", "2" or "500m", in whole thousandths.
func parseCPU(s string) (float64, error) {
	milli, isMilli := strings.CutSuffix(s, "m")
	var f float64
	var err error
	switch {
	case isMilli && decimal.MatchString(milli):
		f, err = strconv.ParseFloat(milli, 64)
		f /= 1000
	case fraction.MatchString(s):
		if _, digits, _ := strings.Cut(s, "."); len(strings.TrimRight(digits, "0")) > 3 {
			return 0, bad("", "%s is finer than a thousandth of a core", show(s))
		}
		f, err = strconv.ParseFloat(s, 64)
	default:
		return 0, bad(`write 0.5, 2 or "500m"`, "%s is not a number of cores", show(s))
	}
	switch {
	case err != nil:
		return 0, bad("", "%s is too large", show(s))
	case f == 0:
		return 0, bad("leave the key out for the default", "0 is refused: it is read as unlimited elsewhere")
	}
	return f, nil
}

func formatCPU(f float64) string {
	return strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64)
}

// CheckText refuses what cannot be an argument or an environment value: NUL
// and what is not UTF-8. Everything else is literal; nothing is expanded.
func CheckText(s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return bad("", "a NUL character is not allowed")
	case strings.ToValidUTF8(s, "") != s:
		return bad("", "%s is not valid UTF-8", show(s))
	case len(s) > 32<<10:
		return bad("", "longer than 32 KiB")
	}
	return nil
}

// literal refuses what another program would expand: a reader of the policy
// must see the path that is meant.
func literal(s string) error {
	const hint = "write the path out; nothing is expanded in a policy"
	for i, c := range s {
		next := byte(' ')
		if i+1 < len(s) {
			next = s[i+1]
		}
		switch {
		case i == 0 && c == '~':
			return bad(hint, "%s begins with ~, which is not expanded", show(s))
		case c == '$', c == '`', c == '*', c == '?', c == '{' && next == '{':
			return bad(hint, "%s holds %q, which is not expanded", show(s), c)
		case c == '%' && (next == '%' || unicode.IsLetter(rune(next))):
			return bad(hint, "%s holds %q, which is not expanded", show(s), s[i:i+2])
		case unicode.IsControl(c) || c == unicode.ReplacementChar:
			return bad("", "%s holds a control character", show(s))
		}
	}
	return nil
}

var (
	label   = lazily(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	syscall = lazily(`^[a-z0-9_]{1,64}$`)
	image   = lazily(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$`)
)

func checkLabel(s string) error {
	if !label.MatchString(s) {
		return bad("letters, digits, dot, dash and underscore, at most 64", "%s is not a name", show(s))
	}
	return nil
}

func checkSyscall(s string) (string, error) {
	if !syscall.MatchString(s) {
		return "", bad("write its kernel name, such as ptrace", "%s is not the name of a system call", show(s))
	}
	return s, nil
}

// checkBase checks the form of rootfs.base; whether there is such a base is
// found out by whoever mounts it.
func checkBase(s string) error {
	kind, rest, _ := strings.Cut(s, ":")
	switch {
	case s == "host":
		return nil
	case kind == "dir" || kind == "oci" || kind == "docker-archive":
		if err := checkAbsolute(rest); err != nil {
			return err
		}
		// Below such a place a root file system may lie (/var/lib/containers/…), but the place itself is none.
		if why, hard := hostRisk(rest); hard || parents[rest] != "" || sensitive[rest] != "" {
			return bad("name a directory made for it", "%s is no base: %s", rest, why)
		}
		return nil
	case kind == "image" && image.MatchString(rest):
		return nil
	}
	return bad("host, dir:/path, image:REF, oci:/layout or docker-archive:/file", "%s is not a base", show(s))
}
