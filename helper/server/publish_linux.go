package server

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/sandbox"
)

// published are ports of a box with the sockets by which they are to be reached. Sockets were made by the caller, with the caller's rights.
type published struct {
	listeners []sandbox.Listener
	told      []helper.Published
	names     []socketName
}

// socketName is where a unix socket lies in the caller's file system.
type socketName struct {
	dir      *os.File
	name     string
	dev, ino uint64
}

// publish matches what is asked with what was granted, and looks at the sockets: a caller may pass anything.
func publish(r *helper.Request, f *files, d *decision) (*published, error) {
	p, dirs := &published{}, f.socketDirs
	if len(r.Publish) > 0 && r.Op == helper.OpSessionExec {
		return nil, &helper.Error{Message: "ports of a session are published when it starts", Field: "--publish", Hint: "skillbox session start --publish"}
	}
	for i, asked := range r.Publish {
		port, err := d.port(asked.Port)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.listeners, func(l sandbox.Listener) bool { return l.Port == port }) {
			return nil, &helper.Error{Message: fmt.Sprintf("port %d is published twice", port.Port), Field: "--publish", Hint: "one socket is enough for many connections"}
		}
		unixSocket, err := listens(f.listeners[i])
		if err != nil {
			return nil, err
		}
		if unixSocket && asked.Socket != "" {
			p.names = append(p.names, socketName{dir: dirs[0], name: asked.Socket})
			dirs = dirs[1:]
		}
		p.listeners = append(p.listeners, sandbox.Listener{Socket: f.listeners[i], Port: port})
		p.told = append(p.told, helper.Published{Port: port.Port, Name: port.Name, Address: asked.Address})
	}
	return p, p.remember()
}

// port is the one that a number or a name means.
func (d *decision) port(asked string) (sandbox.Ingress, error) {
	granted := d.plan.Network.Ingress
	for _, i := range granted {
		if strconv.Itoa(int(i.Port)) == asked || i.Name != "" && i.Name == asked {
			return i, nil
		}
	}
	hint := "add network: {ingress: [{port: 8080}]} to the policy, with the port on which the skill listens"
	if len(granted) > 0 {
		var ports []string
		for _, i := range granted {
			ports = append(ports, strings.TrimSpace(fmt.Sprintf("%d %s", i.Port, i.Name)))
		}
		hint = "it grants " + strings.Join(ports, ", ")
	}
	return sandbox.Ingress{}, &helper.Error{Message: fmt.Sprintf("the policy grants no ingress to port %q", asked), Field: "--publish", Hint: hint}
}

// listens says that a descriptor is a socket that listens, where nobody from other machines gets: a unix one, or TCP's at loopback.
func listens(f *os.File) (unixSocket bool, err error) {
	fd := int(f.Fd())
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	accepting, errAccepting := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	at, errName := unix.Getsockname(fd)
	if errors.Join(err, errAccepting, errName) != nil || kind != unix.SOCK_STREAM || accepting != 1 {
		return false, refused("a listener of the request is no stream socket that listens")
	}
	var host netip.Addr
	switch at := at.(type) {
	case *unix.SockaddrUnix:
		return true, nil
	case *unix.SockaddrInet4:
		host = netip.AddrFrom4(at.Addr)
	case *unix.SockaddrInet6:
		host = netip.AddrFrom16(at.Addr)
	}
	if !host.IsLoopback() {
		return false, &helper.Error{Message: "a port of a box is published at loopback or a unix socket, and nowhere else", Field: "--publish", Hint: "8080=127.0.0.1:0 or 8080=/path/to/socket"}
	}
	return false, nil
}

// held is what has to outlive the request, for a session; release ends it.
func (p *published) held() (*published, error) {
	kept := &published{}
	for _, n := range p.names {
		dir, err := again(n.dir)
		if err != nil {
			return nil, errors.Join(err, kept.release())
		}
		n.dir = dir
		kept.names = append(kept.names, n)
	}
	return kept, nil
}

// release is retract, and lets go of what is held.
func (p *published) release() error {
	if p == nil {
		return nil
	}
	err := p.retract()
	for _, n := range p.names {
		err = errors.Join(err, n.dir.Close())
	}
	return err
}

// remember notes which files the sockets are, so that others' under the same name stay.
func (p *published) remember() error {
	for i, n := range p.names {
		var st unix.Stat_t
		if err := unix.Fstatat(int(n.dir.Fd()), n.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			return refused("there is no socket %q where the request says", n.name)
		}
		p.names[i].dev, p.names[i].ino = st.Dev, st.Ino
	}
	return nil
}

// retract removes the sockets' files, if they are still those.
func (p *published) retract() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, n := range p.names {
		var st unix.Stat_t
		if err := unix.Fstatat(int(n.dir.Fd()), n.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Dev != n.dev || st.Ino != n.ino {
			continue // the caller has taken it away
		}
		if err := unix.Unlinkat(int(n.dir.Fd()), n.name, 0); err != nil && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("server: remove the socket of a published port: %w", err))
		}
	}
	return errors.Join(errs...)
}
