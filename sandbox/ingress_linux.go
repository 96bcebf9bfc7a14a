package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"skillbox/netpolicy/gateway"
)

// Listener is a socket of the caller's, by which a port of the box is to be reached. It stays the caller's.
type Listener struct {
	Socket *os.File
	Port   Ingress // one of the plan's
}

// Publish lets others reach ports of the box, as long as it lasts. It is called once, before the skill starts.
func (b *Box) Publish(all []Listener) error {
	var ports []gateway.Published
	fail := func(err error) error {
		for _, p := range ports {
			err = errors.Join(err, p.Listen.Close())
		}
		return err
	}
	for _, l := range all {
		listen, err := gateway.ListenAt(l.Socket)
		if err != nil {
			return fail(err)
		}
		ports = append(ports, gateway.Published{Port: l.Port.Port, Rule: l.Port.Rule, Listen: listen, Welcome: welcome})
	}
	if len(ports) > 0 {
		b.network.ingress = gateway.Admit(b.network.handle, b.network.gateway, *b.Plan.Network.Budget, ports)
	}
	return nil
}

// retract ends it; the record is then whole.
func (n *network) retract() error {
	in := n.ingress
	n.ingress = nil
	if in == nil {
		return nil
	}
	return in.Close()
}

// welcome lets the caller's own processes in by a unix socket, and none of a box: a skill that is shown the socket runs as the caller, but has a
// number here. By TCP everybody comes who gets there.
func welcome(c net.Conn) error {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var who *unix.Ucred
	var errCred error
	err = raw.Control(func(fd uintptr) { who, errCred = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	switch {
	case err != nil || errCred != nil:
		return errors.Join(err, errCred)
	case who.Uid != uint32(os.Getuid()):
		return fmt.Errorf("another user's process connected")
	case who.Pid != 0:
		return fmt.Errorf("a process of a box connected")
	}
	return nil
}
