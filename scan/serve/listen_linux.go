package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrExposed says that an address can be reached from other machines.
var ErrExposed = errors.New("serve: other machines can reach this address, and whoever reaches the service may use it")

// Listen listens at HOST:PORT or unix:PATH. HOST must be localhost or an address of loopback unless exposed is set. A socket is for its
// user and group, takes the place of one that nobody listens at, and goes when the listener is closed.
func Listen(address string, exposed bool) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenUnix(path)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("serve: listen: %w", err)
	}
	if addr, err := netip.ParseAddr(host); !exposed && host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return nil, fmt.Errorf("%s: %w", address, ErrExposed)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if at, err := netip.ParseAddrPort(l.Addr().String()); !exposed && (err != nil || !at.Addr().IsLoopback()) {
		return nil, errors.Join(fmt.Errorf("%s is %s: %w", address, l.Addr(), ErrExposed), l.Close()) // whatever localhost is here
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) { // another name is one without a file, which everybody may connect to
		return nil, fmt.Errorf("serve: listen: unix:%s: must be an absolute path", path)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("serve: listen: %s is there, and is no socket", path)
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			return nil, errors.Join(fmt.Errorf("serve: listen: another service answers at %s", path), c.Close())
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("serve: listen: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("serve: listen: %w", err)
		}
	}
	was := unix.Umask(0o117) // from the beginning: a mode that is set later comes late
	l, err := net.Listen("unix", path)
	unix.Umask(was)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return l, nil
}
