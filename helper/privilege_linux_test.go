package helper

import (
	"errors"
	"strings"
	"testing"
)

func TestWhoNeedsAUserNamespace(t *testing.T) {
	var all uint64
	for _, c := range RootNeeds {
		all |= 1 << c.Bit
	}
	const docker = 0xa80425fb // the capabilities that Docker leaves to a container's root
	for _, c := range []struct {
		name      string
		uid       int
		effective uint64
		wholeMap  bool
		wants     bool
		says      string // of the refusal; "" for none
	}{
		{"an ordinary user", 1000, 0, true, true, ""},
		{"an ordinary user with capabilities", 1000, all, true, true, ""},
		{"root", 0, all, true, false, ""},
		{"a container's root that may all", 0, all, false, false, ""},
		{"a container's root", 0, docker, false, true, ""},
		{"Docker's root", 0, docker, true, false, "CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN"},
	} {
		got, err := Unprivileged(c.uid, c.effective, c.wholeMap)
		var e *Error
		switch {
		case got != c.wants:
			t.Errorf("%s: %v", c.name, got)
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (!errors.As(err, &e) || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Hint, "--user 1000:1000")):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSubIDsMustBeInTheNamespaceAroundUs(t *testing.T) {
	granted := SubRange{First: 100000, Count: 65536}
	for ids, there := range map[string]bool{
		"0 0 4294967295\n":                  true,
		"0 100000 65536\n":                  false,
		"0 1000 1\n1 100000 65536\n":        false,
		"0 1000 1\n1 100000 500000\n":       true,
		"0 0 120000\n120000 500000 70000\n": true, // two that meet
		"0 0 120000\n120001 500000 70000\n": false,
		"":                                  false,
	} {
		if why := granted.outside("/etc/subuid", ids); (why == "") != there {
			t.Errorf("%q: %q", ids, why)
		}
	}
}
