package scan

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestACanaryIsFoundInEveryWriting(t *testing.T) {
	for range 5 {
		var c canaries
		value := c.newCanary("OPENAI_API_KEY", "sk-proj-", 48)
		c.newCanary("~/.netrc", "", 24)
		encoded := hex.EncodeToString([]byte(value))
		var labels []string
		for chunk := range slices.Chunk([]byte(encoded), 30) {
			labels = append(labels, string(chunk))
		}
		for form, text := range map[string]string{
			"as it is":               "POST / HTTP/1.1\r\nX: " + value,
			"in capitals":            strings.ToUpper(value),
			"reversed":               "x" + reversed(value) + "y",
			"hex":                    encoded,
			"capital hex":            strings.ToUpper(encoded),
			"labels of hex":          strings.Join(labels, ".") + ".evil.example",
			"base64":                 base64.StdEncoding.EncodeToString([]byte(value)),
			"base64 of JSON":         base64.StdEncoding.EncodeToString([]byte(`{"k":"` + value + `"}`)),
			"base64 of a char more":  base64.URLEncoding.EncodeToString([]byte("=" + value + "\n")),
			"base64 of two more":     base64.RawURLEncoding.EncodeToString([]byte("==" + value)),
			"reversed base64":        reversed(base64.StdEncoding.EncodeToString([]byte(value))),
			"base64 of the reversed": base64.StdEncoding.EncodeToString([]byte(reversed(value))),
			"base32":                 base32.StdEncoding.EncodeToString([]byte("k=" + value)),
			"small base32":           strings.ToLower(base32.StdEncoding.EncodeToString([]byte(value))),
			"URL":                    url.QueryEscape(value),
			"escaped bytes":          escaped(value),
			"rot13":                  strings.Map(rot13, value),
			"a part":                 value[20:44],
			"by lines":               value[:30] + "\n" + value[30:],
		} {
			found := c.find(text)
			if len(found) != 1 || found[0].where != "OPENAI_API_KEY" {
				t.Errorf("%s: %v in %q", form, found, text)
			}
		}
	}
}

func TestNothingElseIsACanary(t *testing.T) {
	var c canaries
	env := c.environment([]string{"MY_KEY"})
	secrets := c.homeSecrets()
	if len(env) != len(usualNames)+1 || len(secrets) == 0 {
		t.Fatalf("%d variables, %d files", len(env), len(secrets))
	}
	var others canaries
	others.environment(nil)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. AKIA sk-proj- ghp_ -----BEGIN OPENSSH PRIVATE KEY----- ", 100)
	for _, o := range others.all {
		text += o.value + " " + hex.EncodeToString([]byte(o.value)) + fmt.Sprintln()
	}
	for _, d := range decoys {
		text += d.text
	}
	if found := c.find(text); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	for name, value := range env {
		if found := c.find(value); len(found) != 1 || found[0].where != name {
			t.Errorf("%s: %v", name, found)
		}
	}
}
