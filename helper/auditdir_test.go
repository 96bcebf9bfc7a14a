package helper

import "testing"

func TestEachUserHasAnAuditLogOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/s"}, "/var/log/skillbox/audit"},
		{1000, map[string]string{"HOME": "/home/u"}, "/home/u/.local/state/skillbox/audit"},
		{1000, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/s"}, "/s/skillbox/audit"},
		{1000, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "s"}, "/home/u/.local/state/skillbox/audit"},
		{1000, map[string]string{"HOME": "u"}, ""},
		{1000, nil, ""},
	} {
		if got := AuditDir(c.uid, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
