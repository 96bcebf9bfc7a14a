package resolver

import (
	"fmt"
	"strings"
	"testing"
)

func TestUpstreamsOfResolvConf(t *testing.T) {
	for text, want := range map[string]string{
		"nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch lan\n":                                    "[127.0.0.53:53] 0s 0",
		"# x\n; y\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 \noptions timeout:1 attempts:3 rotate":  "[192.0.2.1:53 [2001:db8::1]:53] 1s 3",
		"nameserver fe80::1%eth0\r\nnameserver oops\noptions timeout:x attempts:-1 timeout:99":           "[[fe80::1%eth0]:53] 30s 0",
		"nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4\n#nameserver 9.": "[1.1.1.1:53 1.1.1.2:53 1.1.1.3:53] 0s 0",
	} {
		u, err := Upstreams(text)
		if got := fmt.Sprint(u.Servers, " ", u.Timeout, " ", u.Attempts); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "search lan", "nameserver", "#nameserver 1.1.1.1"} {
		if _, err := Upstreams(text); err == nil || !strings.Contains(err.Error(), "/etc/resolv.conf") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
