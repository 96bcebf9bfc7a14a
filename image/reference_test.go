package image

import (
	"strings"
	"testing"
)

func TestReferencesAreWrittenInFull(t *testing.T) {
	pin := "@sha256:" + strings.Repeat("a", 64)
	for ref, want := range map[string]string{
		"debian":                         "docker.io/library/debian:latest",
		"debian:12":                      "docker.io/library/debian:12",
		"index.docker.io/library/debian": "docker.io/library/debian:latest",
		"docker.io/debian":               "docker.io/library/debian:latest",
		"somebody/tool":                  "docker.io/somebody/tool:latest",
		"localhost/tool":                 "localhost/tool:latest",
		"localhost:5000/tool:1":          "localhost:5000/tool:1",
		"example.com/a/b__c.d-e:V1":      "example.com/a/b__c.d-e:V1",
		"[::1]:5000/tool":                "[::1]:5000/tool:latest",
		"debian:12" + pin:                "docker.io/library/debian" + pin,
		pin[1:]:                          pin[1:],
		"":                               "", "Debian": "", "debian:": "", "debian:a b": "", "/debian": "", "debian/": "", "a//b": "", "../debian": "", "example.com/../x": "",
		"debian@sha256:12": "", "debian@md5:aa": "", "debian\x00": "", "-x": "", "example.com/" + strings.Repeat("a", 256): "", "exa mple.com/x": "",
	} {
		got, err := Normalize(ref)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", ref, got, err, want)
		}
		if again, _ := Normalize(got); got != "" && again != got {
			t.Errorf("%q is not written in full: %q", got, again)
		}
	}
}

func TestAStoreIsTheUsers(t *testing.T) {
	for _, c := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"HOME": "/root"}, SystemDir},
		{1, map[string]string{"HOME": "/home/a"}, "/home/a/.local/share/skillbox/images"},
		{1, map[string]string{"HOME": "/home/a", "XDG_DATA_HOME": "/data"}, "/data/skillbox/images"},
		{1, map[string]string{"HOME": "/home/a", "XDG_DATA_HOME": "data"}, "/home/a/.local/share/skillbox/images"},
		{1, map[string]string{"SKILLBOX_IMAGES": "/else"}, "/else"},
		{1, nil, ""},
	} {
		if got := dirOf(c.uid, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("uid %d, %v: %q", c.uid, c.env, got)
		}
	}
}

func FuzzNormalize(f *testing.F) {
	f.Add("debian:12")
	f.Add("localhost:5000/a/b@sha256:" + strings.Repeat("0", 64))
	f.Fuzz(func(t *testing.T, ref string) {
		got, err := Normalize(ref)
		if err != nil {
			return
		}
		if again, err := Normalize(got); err != nil || again != got || strings.ContainsAny(got, " \x00\n") {
			t.Errorf("%q is %q and then %q, %v", ref, got, again, err)
		}
	})
}
