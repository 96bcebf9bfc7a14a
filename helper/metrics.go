package helper

import (
	"fmt"
	"net/netip"
	"strings"
)

// exposed begins a SKILLBOX_METRICS that other machines may read.
const exposed = "exposed:"

// metricsAt checks SKILLBOX_METRICS: where a service that is started serves its metrics to a scraper. It is "" for nowhere, "unix" for a
// socket beside the service's own, or an address with a port. They name no skill, but say how much is done here: an address that others
// can reach must be meant.
func metricsAt(text string) (string, error) {
	address, meant := strings.CutPrefix(text, exposed)
	if text == "" || text == "unix" {
		return text, nil
	}
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || at.Port() == 0:
		return "", &Error{Message: fmt.Sprintf("SKILLBOX_METRICS is %q, which is neither unix nor an address with a port", text), Hint: "SKILLBOX_METRICS=unix, or 127.0.0.1:9464"}
	case !at.Addr().IsLoopback() && !meant:
		return "", &Error{Message: fmt.Sprintf("SKILLBOX_METRICS is %s, which other machines may reach", text), Hint: "if they may read the metrics, write " + exposed + text}
	}
	return at.String(), nil
}
