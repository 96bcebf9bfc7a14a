package netpolicy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sweep removes what is left of the links of processes that died without doing so, in the calling process's network namespace, and says how
// many there were.
func Sweep() (links int, err error) {
	ls, err := openLinks()
	if err == nil {
		err = errors.Join(ls.sweep(), ls.Close())
		links = ls.swept
	}
	// Who may not change this namespace, or whose kernel has no nftables, has never made a link either.
	for _, never := range []error{unix.EPERM, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT} {
		if errors.Is(err, never) {
			return 0, nil
		}
	}
	return links, err
}

// sweep removes the links and rules of processes that died without doing so: those whose name nobody has locked. Others may attach and
// close links meanwhile. It must be called in the network namespace that openLinks was called in.
func (ls *links) sweep() error {
	ruled, err := ls.table.links()
	if err != nil {
		return err
	}
	// Where somebody has flushed the rules, only interfaces tell.
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return fmt.Errorf("netpolicy: %w", err)
	}
	for line := range bytes.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		if _, known := ruled[name]; strings.HasPrefix(name, linkPrefix) && !known {
			ruled[name] = -1
		}
	}
	var errs []error
	for name, number := range ruled {
		errs = append(errs, ls.sweepLink(name, number))
	}
	return errors.Join(append(errs, ls.table.tidy())...)
}

// sweepLink removes a link unless it is somebody's. The number is less than zero if there are no rules.
func (ls *links) sweepLink(name string, number int) error {
	lock, err := take("link/" + name)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	if err := ls.delete(name); err != nil {
		return err
	}
	ls.swept++
	if number < 0 {
		return nil
	}
	again, err := take(fmt.Sprintf("net/%d", number))
	if err != nil {
		return err
	}
	l := &link{}
	if again != nil { // otherwise its addresses are another's by now, and so are the connections
		defer again.Close()
		l.address(number, true)
	}
	return ls.end(name, l.Box4, l.Box6)
}

// delete removes the host's end of a link. One that is down goes with its namespace: to remove it takes 20 ms.
func (ls *links) delete(name string) error {
	host, err := ls.find(name)
	if err == nil && host != nil && host.Attrs().Flags&net.FlagUp != 0 {
		err = ls.route.LinkDel(host)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("netpolicy: remove link %s: %w", name, err)
	}
	return nil
}
