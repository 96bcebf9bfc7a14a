package cgroup

import (
	"slices"
	"testing"
)

func TestOwnGroupIsTheLineOfVersionTwo(t *testing.T) {
	for _, c := range []struct {
		name, text, group string
		v1, v2            bool
	}{
		{"unified", "0::/user.slice/user-1000.slice/session-3.scope\n", "/user.slice/user-1000.slice/session-3.scope", false, true},
		{"top", "0::/\n", "/", false, true},
		{"hybrid", "12:memory:/a\n1:name=systemd:/b\n0::/c\n", "/c", true, true},
		{"legacy", "2:cpu,cpuacct:/\n", "", true, false},
		{"removed while we are in it", "0::/a/b (deleted)\n", "/a/b", false, true},
		{"outside the namespace", "0::/../x\n", "/../x", false, true},
		{"none", "", "", false, false},
	} {
		group, v1, v2 := ownGroup(c.text)
		if group != c.group || v1 != c.v1 || v2 != c.v2 {
			t.Errorf("%s: %q, v1 %v, v2 %v", c.name, group, v1, v2)
		}
	}
}

func TestAncestorsStartAtTheTop(t *testing.T) {
	if got := ancestors("/a/b"); !slices.Equal(got, []string{"/", "/a", "/a/b"}) {
		t.Errorf("%q", got)
	}
	if got := ancestors("/"); !slices.Equal(got, []string{"/"}) {
		t.Errorf("%q", got)
	}
}

func TestANilPlaceLacksEverything(t *testing.T) {
	var none *Place
	if got := none.Lacks(CPU, Memory); len(got) != 2 {
		t.Errorf("%q", got)
	}
	p := &Place{Controllers: usable([]string{"cpuset", "memory", "pids", "rdma"})}
	if got := p.Lacks(CPU, Memory, Pids); !slices.Equal(got, []string{CPU}) {
		t.Errorf("%q", got)
	}
}
