package scan

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// canary is a secret that is nobody's: it was made for one scan, so whatever shows it has it from there.
type canary struct {
	where  string // what the skill reads it from: a variable's name, or a file of the home
	secret string // its random part, which windows are taken from
	value  string // the whole, which looks as such a secret does
}

// canaries are those of a scan.
type canaries struct {
	all   []canary
	known map[string]leak // by window
}

// leak is a canary that was seen somewhere.
type leak struct {
	where string // as canary.where
	form  string // how it was written, such as hex
}

// window is how many characters of a canary's form in a row are one. Of random ones, so many are not there by chance.
const window = 16

// newCanary makes one whose value is a prefix and random letters and digits.
func (c *canaries) newCanary(where, prefix string, length int) string {
	secret := letters(length)
	one := canary{where: where, secret: secret, value: prefix + secret}
	c.all = append(c.all, one)
	if c.known == nil {
		c.known = map[string]leak{}
	}
	for form, texts := range forms(secret) {
		for _, text := range texts {
			text = strings.ToLower(text)
			for i := 0; i+window <= len(text); i++ {
				c.known[text[i:i+window]] = leak{where, form}
			}
		}
	}
	return one.value
}

// letters are random letters and digits.
func letters(n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	random := make([]byte, n)
	_, _ = rand.Read(random) // it never fails (crypto/rand)
	for i, b := range random {
		random[i] = alphabet[int(b)%len(alphabet)]
	}
	return string(random)
}

// forms are the ways in which a secret is looked for. Base64 and base32 depend on where in the encoded text it begins; what its neighbours
// decide is cut off.
func forms(secret string) map[string][]string {
	all := map[string][]string{
		"as it is": {secret},
		"reversed": {reversed(secret)},
		"hex":      {hex.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(reversed(secret)))},
		"rot13":    {strings.Map(rot13, secret)},
		"URL":      {escaped(secret)},
	}
	for _, one := range []string{secret, reversed(secret)} {
		for before := range 3 {
			text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + one))
			text = text[(before*8+5)/6 : len(text)-1]
			all["base64"] = append(all["base64"], text, reversed(text))
		}
		for before := range 5 {
			text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(strings.Repeat("x", before) + one))
			all["base32"] = append(all["base32"], text[(before*8+4)/5:len(text)-1])
		}
	}
	return all
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

func rot13(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z':
		return 'a' + (r-'a'+13)%26
	case 'A' <= r && r <= 'Z':
		return 'A' + (r-'A'+13)%26
	}
	return r
}

// escaped writes every byte as URLs may; what needs no escape stands in them as it is, which is another form.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// find returns the canaries in a text, each in one form, by where they were. Dots, dashes, spaces and the like are passed over too: a name that
// carries something out has it in several labels.
func (c *canaries) find(text string) []leak {
	text = strings.ToLower(text)
	found := map[string]leak{}
	for _, t := range []string{text, strings.Map(joined, text)} {
		for i := 0; i+window <= len(t); i++ {
			if l, ok := c.known[t[i:i+window]]; ok {
				if _, twice := found[l.where]; !twice {
					found[l.where] = l
				}
			}
		}
	}
	all := make([]leak, 0, len(found))
	for _, where := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[where])
	}
	return all
}

func joined(r rune) rune {
	switch r {
	case '.', '-', '_', ' ', '\n', '\t', '"', ',', ':':
		return -1
	}
	return r
}

// usualNames are variables that hold credentials on many machines, with how their values begin and how many characters follow.
var usualNames = []struct {
	name, prefix string
	length       int
}{
	{"AWS_ACCESS_KEY_ID", "AKIA", 16},
	{"AWS_SECRET_ACCESS_KEY", "", 40},
	{"OPENAI_API_KEY", "sk-proj-", 48},
	{"ANTHROPIC_API_KEY", "sk-ant-api03-", 48},
	{"GITHUB_TOKEN", "ghp_", 36},
	{"GITLAB_TOKEN", "glpat-", 20},
	{"SLACK_BOT_TOKEN", "xoxb-", 32},
	{"STRIPE_SECRET_KEY", "sk_live_", 32},
	{"NPM_TOKEN", "npm_", 36},
	{"HF_TOKEN", "hf_", 34},
	{"DATABASE_PASSWORD", "", 24},
}

// environment makes values for names, and for those that are usual.
func (c *canaries) environment(names []string) map[string]string {
	env := map[string]string{}
	for _, u := range usualNames {
		env[u.name] = c.newCanary(u.name, u.prefix, u.length)
	}
	for _, name := range names {
		if _, ok := env[name]; !ok {
			env[name] = c.newCanary(name, "", 32)
		}
	}
	return env
}
