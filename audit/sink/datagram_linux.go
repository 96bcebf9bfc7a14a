package sink

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"skillbox/audit"
)

// datagrams sends each record as one datagram to a unix socket, and never waits.
type datagrams struct {
	kind, path string
	encode     func(*audit.Record) []byte
	fd         int // -1 where it is not connected
}

func newDatagrams(kind, path, usual string, encode func(*audit.Record) []byte) *datagrams {
	if path == "" {
		path = usual
	}
	return &datagrams{kind, path, encode, -1}
}

func (d *datagrams) name() string { return d.kind + " " + d.path }

func (d *datagrams) reach(context.Context) error {
	if d.fd >= 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sink: socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: d.path}); err != nil {
		_ = unix.Close(fd) // nothing was sent
		return fmt.Errorf("sink: connect to %s: %w", d.path, err)
	}
	d.fd = fd
	return nil
}

func (d *datagrams) send(ctx context.Context, batch []audit.Record) outcome {
	o := outcome{}
	for i := range batch {
		err := d.reach(ctx)
		if err == nil {
			if _, err = unix.SendmsgN(d.fd, d.encode(&batch[i]), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err == unix.ECONNREFUSED {
				// Its reader was started anew, which is most often so when there is one at all.
				if err = d.close(); err == nil {
					err = d.reach(ctx)
				}
				if err == nil {
					_, err = unix.SendmsgN(d.fd, d.encode(&batch[i]), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				}
			}
		}
		switch {
		case err == unix.EMSGSIZE: // the system's sockets are smaller than a record
			o.refused, o.why = o.refused+1, fmt.Errorf("sink: send to %s: %w", d.path, err)
		case err == unix.EAGAIN || err == unix.ENOBUFS: // its reader is busy, and the connection good
			o.why, o.busy = fmt.Errorf("sink: send to %s: its reader does not read: %w", d.path, err), true
			return o
		case err != nil:
			o.why = fmt.Errorf("sink: send to %s: %w", d.path, err)
			_ = d.close() // the next attempt makes another
			return o
		}
		o.done++
	}
	return o
}

func (d *datagrams) close() error {
	if d.fd < 0 {
		return nil
	}
	err := unix.Close(d.fd)
	d.fd = -1
	return err
}
