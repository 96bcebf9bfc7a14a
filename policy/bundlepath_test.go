package policy

import "testing"

func TestABundleAppearsWhereNothingElseIs(t *testing.T) {
	p, err := Parse("p.yaml", []byte("version: 1\nfilesystem: {read: [{host: /srv/ref, path: /data/ref}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for at, good := range map[string]bool{
		"/home/skill/.claude/skills/x": true, "/home/ada/.claude/skills/x": true, "/root/.agents/x": true, "/opt/skills/x": true, "/workspace": true, "/data/skill": true,
		"": false, "/": false, "x": false, "~/x": false, "/home": false, "/home/skill": false, "/home/ada": false, "/root": false, "/skill": false, "/skill/x": false, "/usr/lib/x": false,
		"/tmp/x": false, "/run/skillbox/x": false, "/proc/self": false, "/etc/x": false, "/a/../etc": false, "/a//b": false, "/a/": false, "/$HOME/x": false, "/data": false,
		"/data/ref": false, "/data/ref/x": false, "/a\nb": false, "/home/ada/../../etc/x": false,
	} {
		if err := CheckBundlePath(at, p); (err == nil) != good {
			t.Errorf("%q: %v", at, err)
		}
	}
}
