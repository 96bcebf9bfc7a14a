package broker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/netpolicy"
	"skillbox/wire"
)

const (
	// maxLinks are a worker's at a time, and maxOpened the ranges that one of them opens.
	maxLinks, maxOpened = 256, 1024
	// idLength is that of a box's id, see sandbox.NewID; the host's end is named after it.
	idLength  = 16
	idLetters = "0123456789abcdefghjkmnpqrstvwxyz"
)

// serveErrands does what a worker asks for, one thing after the other, until it has ended or asks for what it may not: then it is killed,
// for no worker of ours does.
func (b *Broker) serveErrands(w *worker, log *slog.Logger) {
	for {
		var a Ask
		files, err := w.errands.Receive(&a)
		if errors.Is(err, io.EOF) {
			return
		}
		var r Answer
		if err == nil {
			r, err = b.errand(w, &a, files)
		}
		wire.CloseAll(files)
		if err == nil {
			err = w.errands.Send(r)
		}
		if err != nil {
			if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				log.Error("worker killed for what it asked", "error", err)
			}
			w.kill()
			return
		}
	}
}

// errand is one of them. An error is that no worker of ours would have asked.
func (b *Broker) errand(w *worker, a *Ask, files []int) (r Answer, err error) {
	failed := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	switch {
	case a.Link != nil && len(files) == 1:
		if err := a.Link.check(); err != nil {
			return r, err
		}
		if err := ownedBy(files[0], w.userns); err != nil {
			return r, err
		}
		r.Error = failed(w.link(&b.maker, a.Link, files[0]))
	case len(files) > 0:
		return r, fmt.Errorf("broker: %d descriptors with an errand that needs none", len(files))
	case len(a.Records) > 0:
		events, err := w.events(a.Records)
		if err != nil {
			return r, err
		}
		r.Error = failed(b.Audit.Append(events...))
	case a.Unlink != "":
		r.Error = failed(w.unlink(a.Unlink))
	case a.Linkable:
		no4, no6 := netpolicy.Linkable()
		r.No4, r.No6 = why(no4), why(no6)
	case a.Ready:
		b.mu.Lock()
		w.ready = true
		b.mu.Unlock()
	case a.Leaving:
		b.mu.Lock()
		w.retire()
		if b.current[w.uid] == w {
			delete(b.current, w.uid)
		}
		b.mu.Unlock()
	default:
		return r, errors.New("broker: an errand that is none")
	}
	return r, nil
}

func why(err error) *No {
	if err == nil {
		return nil
	}
	var no *netpolicy.NoForwarding
	if errors.As(err, &no) {
		return &No{no.Message, no.Hint}
	}
	return &No{Message: err.Error(), Hint: "see the log of the system service"}
}

// check refuses what could mean something else to the kernel than a name, and what is too much.
func (l *Link) check() error {
	if len(l.ID) != idLength || strings.Trim(l.ID, idLetters) != "" {
		return fmt.Errorf("broker: %.40q is no box's id", l.ID)
	}
	if len(l.Opened) > maxOpened {
		return fmt.Errorf("broker: %d opened ranges; %d is the most", len(l.Opened), maxOpened)
	}
	for _, p := range l.Opened {
		if !p.IsValid() || p.Addr().Zone() != "" || p != p.Masked() {
			return fmt.Errorf("broker: %s is no range", p)
		}
	}
	return nil
}

// ownedBy says that a descriptor is of a network namespace that this user namespace owns: neither the machine's nor another worker's.
func ownedBy(fd int, user namespace) error {
	// Reading the link asks no file system, which could be one of the caller's that does not answer.
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	if !strings.HasPrefix(name, "net:[") {
		return fmt.Errorf("broker: a descriptor of %.80q is no network namespace", name)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return fmt.Errorf("broker: %s is no network namespace: %d, %w", name, kind, err)
	}
	owner, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
	if err != nil {
		return fmt.Errorf("broker: the owner of %s: %w", name, err)
	}
	defer unix.Close(owner)
	var st unix.Stat_t
	if err := unix.Fstat(owner, &st); err != nil {
		return fmt.Errorf("broker: the owner of %s: %w", name, err)
	}
	if (namespace{st.Dev, st.Ino}) != user {
		return fmt.Errorf("broker: %s belongs to another user namespace", name)
	}
	return nil
}

// link makes a box's link.
func (w *worker) link(maker *netpolicy.Maker, l *Link, fd int) error {
	w.mu.Lock()
	n, taken := len(w.links), w.links[l.ID] != nil
	w.mu.Unlock()
	if n >= maxLinks {
		return fmt.Errorf("the system service makes %d links for one caller, and so many there are", maxLinks)
	}
	if taken {
		return fmt.Errorf("box %s has a link", l.ID)
	}
	ns, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	file := os.NewFile(uintptr(ns), "network namespace")
	defer file.Close()
	made, err := maker.Link(file, netpolicy.LinkDescription{ID: l.ID, IPv6: l.IPv6, Opened: l.Opened})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[l.ID] = made
	return nil
}

// unlink ends it. What is not there has been ended.
func (w *worker) unlink(id string) error {
	w.mu.Lock()
	l := w.links[id]
	w.mu.Unlock()
	if l == nil {
		return nil
	}
	err := l.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.links, id)
	}
	return err
}
