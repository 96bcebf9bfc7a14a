package netpolicy

import (
	"errors"
	"os"
	"sync"
)

// MakeLink is the Linker for the calling process's network namespace, which takes root there. What is left of links of dead processes is
// removed before. Whether the host passes on what a link carries was asked before, see Linkable.
func MakeLink(ns *os.File, d LinkDescription) (Link, error) {
	turn, err := takeTurn()
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	return makeLink(ns, d)
}

// Maker makes links as MakeLink does, for a process that makes those of many users: they take turns here, and at no lock that a user can hold.
type Maker struct{ turn sync.Mutex }

// Link is a Linker.
func (m *Maker) Link(ns *os.File, d LinkDescription) (Link, error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	return makeLink(ns, d)
}

func makeLink(ns *os.File, d LinkDescription) (_ Link, err error) {
	links, err := openLinks()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, links.Close())
		}
	}()
	if err := links.sweep(); err != nil {
		return nil, err
	}
	if err := switchOn(forward4, true); err != nil {
		return nil, err
	}
	if d.IPv6 {
		if err := switchOn(forward6, true); err != nil {
			return nil, err
		}
	}
	made, err := links.attach(ns, d)
	if err != nil {
		return nil, err
	}
	return &ownLink{made, links}, nil
}

// ownLink is a link with what it was made by.
type ownLink struct {
	link  *link
	links *links // nil once closed
}

func (o *ownLink) Close() error {
	if o.links == nil {
		return nil
	}
	if err := o.link.Close(); err != nil {
		return err
	}
	links := o.links
	o.links = nil
	return links.Close()
}
