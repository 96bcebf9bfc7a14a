//go:build linux

package integration

import (
	"bytes"
	"strings"
	"testing"
)

// hellos are first messages to api.allowed.example or to shop.cdn.example, which another name shares its address with, and the verdict
// on each. Both ways out have the same.
func hellos(t *testing.T) []try {
	t.Helper()
	const api, shop = "api.allowed.example", "shop.cdn.example"
	at := func(name, addr string, want, rule string, send ...[]byte) try {
		return try{name, talk{To: "tcp " + join(addr, 443), Send: send}, want, rule}
	}
	named := func(name string) []byte { return helloNaming(t, name) }
	split := func(size int) [][]byte { return segments(named(api), size) }
	message := messageNaming(t, []string{api})
	padding := func(n int) []byte { return extension(21, make([]byte, n)) }
	const notName, odd, unnamed = "which is not a name", "cannot be parsed", "names no server"

	tries := []try{
		at("the name", apiAddr, reached, "", named(api)),
		at("the name, v6", apiAddr6, reached, "", named(api)),
		at("another letter case", apiAddr, reached, "", named("API.Allowed.EXAMPLE")),
		at("no name", apiAddr, reset, unnamed, withoutName(t)),
		at("an empty name", apiAddr, reset, odd, named("")),
		at("another name", apiAddr, reset, "", named("other.example")),
		at("a name below", apiAddr, reset, "", named("x.api.allowed.example")),
		at("a name that ends alike", apiAddr, reset, "", named("xapi.allowed.example")),
		at("a name that begins alike", apiAddr, reset, "", named("api.allowed.example.evil.example")),
		at("the name of a deny rule", apiAddr, reset, "policy.yaml:", named("tracker.wild.example")),
		at("the name at an attacker's address", otherAddr, refused, "", named(api)),
		at("the name at another allowed name's address", sharedAddr, reset, "was not given out for", named(api)),
		at("a co-tenant's name", sharedAddr, reset, "", named("evil.cdn.example")),
		at("an allowed co-tenant that was not looked up", sharedAddr, reset, "was not given out for", named("news.cdn.example")),
		at("the shared address's own", sharedAddr, reached, "", named(shop)),
		at("a NUL and a suffix", apiAddr, reset, notName, named(api+"\x00.evil.example")),
		at("a prefix and a NUL", apiAddr, reset, notName, named("evil.example\x00."+api)),
		at("a dot at the end", apiAddr, reset, odd, named(api+".")),
		at("an IPv4 address", apiAddr, reset, notName, named(apiAddr)),
		at("an IPv6 address", apiAddr6, reset, notName, named(apiAddr6)),
		at("an address in brackets", apiAddr6, reset, notName, named("["+apiAddr6+"]")),
		at("a number", apiAddr, reset, notName, named("335610122")),
		at("a wildcard", wildAddr, reset, notName, named("*.wild.example")),
		at("an underscore", wildAddr, reset, notName, named("_x.wild.example")),
		at("a user and a name", apiAddr, reset, notName, named("x@"+api)),
		at("a blank", apiAddr, reset, notName, named(" "+api)),
		at("a line end", apiAddr, reset, notName, named(api+"\r\n")),
		at("letters that are mapped", apiAddr, reset, notName, named("ａpi.allowed.example")),
		at("a name of 300 bytes", apiAddr, reset, notName, named(strings.Repeat("a.", 140)+api)),
		at("a label of 100 bytes", wildAddr, reset, notName, named(strings.Repeat("a", 100)+".wild.example")),
		at("two names", apiAddr, reset, odd, records(messageNaming(t, []string{api, "other.example"}), 1<<14)),
		at("two lists of names", apiAddr, reset, odd, helloNaming(t, api, extension(0, sized(2, hostName("other.example"))))),
		at("an encrypted hello to the name", apiAddr, reached, "", encryptedHello(t, api, "other.example")),
		at("an encrypted hello that hides the name", apiAddr, reset, "", encryptedHello(t, "other.example", api)),

		at("100 segments", apiAddr, reached, "", split(len(named(api))/100+1)...),
		at("100 records", apiAddr, reached, "", records(message, len(message)/100+1)),
		at("records of one byte", apiAddr, reached, "", records(message, 1)),
		at("records of one byte with another name", apiAddr, reset, "", records(messageNaming(t, []string{"other.example"}), 1)),
		at("60 KiB of padding", apiAddr, reached, "", helloNaming(t, api, padding(60<<10))),
		at("60 KiB of padding in front of another name", apiAddr, reset, "", helloNaming(t, "other.example", padding(60<<10))),
		at("more than a hello may have", apiAddr, reset, odd, records(append([]byte{1, 2, 0, 0}, make([]byte, 100<<10)...), 1<<14)),
		at("a hello that ends early", apiAddr, reset, odd, records(append([]byte{1, 0, 0, 50}, message[4:54]...), 1<<14)),
		at("a warning before it", apiAddr, reset, "mixed with other records", append([]byte{21, 3, 1, 0, 2, 1, 112}, named(api)...)),
		at("application data", apiAddr, reset, odd, []byte{23, 3, 3, 0, 5, 1, 2, 3, 4, 5}),
		at("a hello of SSL 2", apiAddr, reset, odd, []byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10, 1, 0, 0x80, 3, 0, 0x80, 7, 0, 0xc0}),
		at("the name, and then another hello", apiAddr, reached, "", append(named(api), named("other.example")...)),
		at("random bytes", apiAddr, reset, "speaks neither TLS nor HTTP", bytes.Repeat([]byte{0x7e, 0xf3, 0x01}, 300)),
		at("the banner of SSH", apiAddr, reset, "speaks neither TLS nor HTTP", []byte("SSH-2.0-evil\r\n")),
		at("HTTP to the name", apiAddr, reached, "", []byte("GET / HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n")),
		at("HTTP to another name", apiAddr, reset, "", []byte("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")),
	}
	for i := range tries {
		tries[i].talk.Hold = 500
	}
	tries[0].talk.Look = []string{api, shop, "x.wild.example"}
	return tries
}

func TestTheNameInTLSIsChecked(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) { w.judge(t, y, y.policy(usual), hellos(t)) })
}

func TestThreat195SNIFragmentation(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		const look = "api.allowed.example"
		var tries []try
		for _, x := range []struct{ name, want string }{{look, reached}, {"other.example", reset}, {look + "\x00", reset}} {
			rule := map[bool]string{true: "which is not a name"}[strings.Contains(x.name, "\x00")]
			whole := helloNaming(t, x.name)
			message := messageNaming(t, []string{x.name})
			padding := extension(21, make([]byte, 60<<10))
			padded := helloNaming(t, x.name, padding)
			for how, send := range map[string][][]byte{
				"100 segments":                   segments(whole, len(whole)/100+1),
				"100 records and segments":       segments(records(message, len(message)/100+1), len(message)/100+6),
				"60 KiB in 100 segments":         segments(padded, len(padded)/100+1),
				"60 KiB in records of 100 bytes": {records(messageNaming(t, []string{x.name}, padding), 100)},
			} {
				tries = append(tries, try{x.name + " in " + how, talk{Look: []string{look}, To: "tcp " + join(apiAddr, 443), Send: send, Pause: 2, Hold: 1000}, x.want, rule})
			}
		}
		w.judge(t, y, y.policy(usual), tries)
	})
}

// A client that says nothing, and one that goes on with a byte at a time, are cut off after ten seconds. All ways wait together.
func TestASlowHelloIsCutOff(t *testing.T) {
	inTheWorld(t, func(t *testing.T, w *world) {
		leavesNothing(t)
		w.forget()
		look := []string{"api.allowed.example", "services.example"}
		talks := []talk{
			{Look: look, To: "tcp " + join(apiAddr, 443), Hold: 15000},
			{Look: look, To: "tcp " + join(apiAddr, 443), Send: segments(helloNaming(t, look[0]), 1), Pause: 150, Hold: 15000},
			{Look: look, To: "tcp " + join(apiAddr, 80), Send: segments([]byte("GET / HTTP/1.1\r\nHost: api.allowed.example\r\nX: "+strings.Repeat("x", 200)), 1), Pause: 150, Hold: 15000},
			{Look: look, To: "tcp " + join(servicesAddr, 9999), Wait: 11000, Send: once("late\n"), Count: 5}, // where nobody has to speak, silence is no fault
		}
		ends := map[way]func(any) any{}
		for _, y := range ways() {
			end := w.beginProbe(t, y, y.policy(usual), talks, "talk", "together")
			ends[y] = func(got any) any { return end(got) }
		}
		for y, end := range ends {
			var got []outcome
			end(&got)
			for i, o := range got[:3] {
				if o.verdict() != reset || o.EndMS < 9000 || o.EndMS > 12000+float64(patience(1000)) {
					t.Errorf("%s: client %d: %v", y, i, o)
				}
			}
			if got[3].verdict() != reached {
				t.Errorf("%s: %v", y, got[3])
			}
		}
		for _, v := range w.visits(func(v *visit) bool { return v.bytes > 0 && v.to.Port() != 9999 }) {
			t.Errorf("the server got %v", &v)
		}
	})
}
