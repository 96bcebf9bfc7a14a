package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// mayReach refuses what a page in somebody's browser sends: a service on loopback is reachable from each.
func (s *Server) mayReach(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return fail(http.StatusForbidden, "a page in a browser asks, of another site than this: %w", err)
	}
	if s.AnyHost || loopbackName(r.Host) {
		return nil
	}
	// A name that is pointed here after its page was loaded (DNS rebinding).
	return fail(http.StatusForbidden, "the Host header is not localhost or an address of loopback: a proxy in front must send one of these")
}

func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// mayAsk is mayReach, and the token where there is one.
func (s *Server) mayAsk(r *http.Request) error {
	if err := s.mayReach(r); err != nil {
		return err
	}
	if s.Token == "" {
		return nil
	}
	scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	is, want := sha256.Sum256([]byte(strings.TrimSpace(sent))), sha256.Sum256([]byte(s.Token))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(is[:], want[:]) != 1 {
		return fail(http.StatusUnauthorized, "the request must have the header Authorization: Bearer with the service's token")
	}
	return nil
}
