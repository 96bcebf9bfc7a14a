package resolver

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Upstreams reads the servers and the options timeout and attempts from the text of the host's resolv.conf(5). Like the C library it takes
// the first three servers and ignores what it does not know. A stub on a loopback address, such as systemd-resolved's
// 127.0.0.53, is fine: it is asked from the host's namespace. Search domains are not read: a box asks for full names.
func Upstreams(resolvConf string) (Upstream, error) {
	var u Upstream
	for line := range strings.Lines(resolvConf) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			// An IPv6 address may have a zone, which is the host's, as are the sockets.
			if a, err := netip.ParseAddr(fields[1]); err == nil && len(u.Servers) < 3 {
				u.Servers = append(u.Servers, netip.AddrPortFrom(a, 53))
			}
		case "options":
			for _, o := range fields[1:] {
				u.option(o)
			}
		}
	}
	if len(u.Servers) == 0 {
		return Upstream{}, errors.New("resolver: resolv.conf names no server: write \"nameserver\" and an address into the host's /etc/resolv.conf, or start its resolver")
	}
	return u, nil
}

func (u *Upstream) option(o string) {
	word, value, _ := strings.Cut(o, ":")
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 {
		return
	}
	switch word {
	case "timeout":
		u.Timeout = time.Duration(min(n, 30)) * time.Second
	case "attempts":
		u.Attempts = min(n, 5)
	}
}
