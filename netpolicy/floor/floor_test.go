package floor

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestARangeOpensWhatItLiesWithin(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "private", "10.1.0.0/16": "private", "10.1.2.3/32": "private", "8.0.0.0/6": "", "0.0.0.0/0": "", "0.0.0.0/8": "this network",
		"169.254.0.0/16": "link-local", "169.254.169.254/32": "metadata", "168.63.129.0/24": "", "224.0.0.0/3": "", "8.8.8.0/24": "",
		"::/0": "", "::1/128": "loopback", "fc00::/7": "private", "fc00::/6": "", "fd00:ec2::254/128": "metadata", "2606:4700::/32": "",
		"64:ff9b::/96": "IPv4 within IPv6", "64:ff9b::808:808/128": "IPv4 within IPv6", "64:ff9b::/32": "", "::/96": "IPv4 within IPv6", "::/64": "",
	} {
		if got := Opens(netip.MustParsePrefix(in)); got != want {
			t.Errorf("%s opens %q, want %q", in, got, want)
		}
	}
}

func TestAWideRangeHoldsWhatItDoesNotOpen(t *testing.T) {
	for in, want := range map[string]string{
		"8.0.0.0/6":      "[10.0.0.0/8]",
		"10.0.0.0/8":     "[]",
		"169.254.0.0/16": "[169.254.169.254/32 169.254.170.2/32]",
		"fc00::/7":       "[fd00:ec2::/32 fd20:ce::254/128]",
		"::/95":          "[::1/128 ::/128 ::/96]",
		"2606:4700::/32": "[]",
	} {
		if got := fmt.Sprint(Held(netip.MustParsePrefix(in))); got != want {
			t.Errorf("%s holds %s, want %s", in, got, want)
		}
	}
}

func TestAnAddressIsJudgedInEveryForm(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3": "private", "::ffff:10.1.2.3": "private", "64:ff9b::10.1.2.3": "private", "64:ff9b:1::10.1.2.3": "private", "2002:a01:203::": "private",
		"::10.1.2.3": "private", "::ffff:0:10.1.2.3": "private", "2001::f5fe:fdfc": "private", "::1": "loopback", "fe80::1%eth0": "link-local",
		"8.8.8.8": "", "64:ff9b::8.8.8.8": "", "2606:4700::1111": "",
	} {
		if got := Of(netip.MustParseAddr(in)); got != want {
			t.Errorf("%s is %q, want %q", in, got, want)
		}
	}
}
