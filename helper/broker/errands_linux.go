package broker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/wire"
)

// Errands is a worker's way to the broker.
type Errands struct {
	mu   sync.Mutex // one at a time
	conn *wire.Conn
}

// NewErrands takes over a worker's end, on which it is told first who it works for.
func NewErrands(conn *wire.Conn) (*Errands, Start, error) {
	var s Start
	files, err := conn.Receive(&s)
	wire.CloseAll(files)
	if err != nil {
		return nil, s, fmt.Errorf("broker: start of a worker: %w", err)
	}
	return &Errands{conn: conn}, s, nil
}

func (e *Errands) ask(a Ask, files ...int) (Answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var answer Answer
	if err := e.conn.Send(a, files...); err != nil {
		return answer, fmt.Errorf("broker: %w", err)
	}
	fds, err := e.conn.Receive(&answer)
	wire.CloseAll(fds)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}

// Ready says that the worker takes callers: those whom it does not come to take are then sent to the next one.
func (e *Errands) Ready() error {
	_, err := e.ask(Ask{Ready: true})
	return err
}

// Linkable is netpolicy.Linkable of the broker's network namespace.
func (e *Errands) Linkable() (no4, no6 error) {
	answer, err := e.ask(Ask{Linkable: true})
	if err != nil {
		return err, err
	}
	return answer.No4.error(), answer.No6.error()
}

func (n *No) error() error {
	if n == nil {
		return nil
	}
	return &netpolicy.NoForwarding{Message: n.Message, Hint: n.Hint}
}

// Link is a netpolicy.Linker.
func (e *Errands) Link(ns *os.File, d netpolicy.LinkDescription) (netpolicy.Link, error) {
	_, err := e.ask(Ask{Link: &Link{ID: d.ID, IPv6: d.IPv6, Opened: d.Opened}}, int(ns.Fd()))
	if err != nil {
		return nil, err
	}
	return &remote{e, d.ID}, nil
}

// remote is a link that the broker holds.
type remote struct {
	errands *Errands
	id      string
}

func (r *remote) Close() error {
	_, err := r.errands.ask(Ask{Unlink: r.id})
	return err
}

// Door is where a worker's callers come from.
type Door struct {
	From    *os.File
	Errands *Errands
}

// Next waits for a caller: the connection, the process, and the groups that it had when it connected. Nil without an error is that none came;
// io.EOF, that none will.
func (d *Door) Next(wait time.Duration) (*wire.Conn, helper.Asker, []uint32, error) {
	conn, note, err := wire.Take(int(d.From.Fd()), wait)
	if conn == nil || err != nil {
		return nil, helper.Asker{}, nil, err
	}
	asker, groups, err := readNote(note)
	if err != nil {
		return nil, asker, nil, errors.Join(err, conn.Close())
	}
	return conn, asker, groups, nil
}

// Leave asks for nobody else to be sent. Who was sent before is still there, and then io.EOF.
func (d *Door) Leave() error {
	_, err := d.Errands.ask(Ask{Leaving: true})
	return err
}
