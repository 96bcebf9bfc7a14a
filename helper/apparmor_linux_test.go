package helper

import (
	"errors"
	"strings"
	"testing"
)

func TestAppArmorsRestrictionIsNamedBeforeItStrikes(t *testing.T) {
	for _, c := range []struct {
		restriction, label string
		packaged           bool
		hint               string // of the refusal; "" for none
	}{
		{"1\n", "unconfined\n", true, "apparmor_parser -r /etc/apparmor.d/skillboxd"},
		{"1\n", "unconfined\n", false, "skillbox doctor"},
		{"1\n", "skillboxd (unconfined)\n", true, ""},
		{"1\n", "snap.host.run (enforce)\n", false, ""},
		{"0\n", "unconfined\n", false, ""},
	} {
		err := judgeAppArmor(c.restriction, c.label, c.packaged)
		var e *Error
		switch {
		case c.hint == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.hint != "" && (!errors.As(err, &e) || !strings.Contains(e.Message, "AppArmor") || !strings.Contains(e.Hint, c.hint)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}
