package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoService says that the caller has no service that runs.
var ErrNoService error = &Error{Message: "your service does not run", Hint: "`skillbox exec --mode user` starts it"}

// AskService asks a service of the caller's for what Served operations are answered with, as long as ctx lasts: with mode "system" root's, with
// "user" the caller's own, with "auto" or "" the first of these that there is. It starts no service and makes nothing; the error is
// ErrNoService where there is none.
func AskService(ctx context.Context, mode, op string, words []string) (json.RawMessage, error) {
	r := &Request{Version: Version, Op: op, Words: words}
	switch mode {
	case "system":
		return r.askAt(ctx, System)
	case "", "auto":
		document, err := r.askAt(ctx, System)
		var declined *Declined
		if !errors.Is(err, ErrNoService) && !errors.As(err, &declined) {
			return document, err
		}
	case "user":
	default:
		return nil, &Error{Message: fmt.Sprintf("mode %s: there are auto, system and user", mode)}
	}
	return r.askAt(ctx, RunningService)
}

func (r *Request) askAt(ctx context.Context, service func() (*Peer, error)) (json.RawMessage, error) {
	p, err := connectWithin(ctx, service)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	answer, err := p.Do(r, nil, func(string) (string, bool) { return "", false })
	stop()
	err = errors.Join(err, p.Close())
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("helper: the service does not answer: %w", ctx.Err())
	case errors.Is(err, ErrRetired):
		return nil, ErrNoService
	case err != nil:
		return nil, err
	case answer.Result != nil:
		return nil, answer.Result.Error
	}
	return answer.Plan, nil
}

// connectWithin connects as long as ctx lasts: a service that was stopped accepts nobody, and connect(2) waits.
func connectWithin(ctx context.Context, service func() (*Peer, error)) (*Peer, error) {
	type connected struct {
		peer *Peer
		err  error
	}
	done := make(chan connected, 1)
	go func() {
		p, err := service()
		done <- connected{p, err}
	}()
	select {
	case c := <-done:
		if c.err == nil && c.peer == nil {
			c.err = ErrNoService
		}
		return c.peer, c.err
	case <-ctx.Done():
		go func() {
			if c := <-done; c.peer != nil {
				_ = c.peer.Close() // nobody waits for it
			}
		}()
		return nil, fmt.Errorf("helper: the service accepts no connection: %w", ctx.Err())
	}
}

// ServicePlace is what lies where the caller's service has its socket, or would have.
type ServicePlace struct {
	Dir       string
	Possible  bool // it is there, or can be made
	Exists    bool
	Directory bool // and not a link or a file
	UID       int
	Mode      uint32 // permission bits
	Socket    bool   // there is one of this caller's service, which may have died
	PID       int    // of the service; 0 if none is found
}

// LookAtService makes nothing.
func LookAtService() (*ServicePlace, error) {
	name, err := ServiceSocket()
	if err != nil {
		return nil, err
	}
	p := &ServicePlace{Dir: ServiceDir()}
	var st unix.Stat_t
	err = unix.Lstat(p.Dir, &st)
	if err == unix.ENOENT {
		p.Possible = unix.Access(filepath.Dir(p.Dir), unix.W_OK|unix.X_OK) == nil
		return p, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "lstat", Path: p.Dir, Err: err}
	}
	p.Exists, p.Possible, p.Directory = true, true, st.Mode&unix.S_IFMT == unix.S_IFDIR
	p.UID, p.Mode = int(st.Uid), st.Mode&0o7777
	p.Socket = unix.Lstat(filepath.Join(p.Dir, name), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
	p.PID = findService(p.Dir, name)
	return p, nil
}

// findService looks for the service with this socket among the processes that we see: pid 1 of a namespace of its own, for before it becomes
// a box what it starts looks as it does.
func findService(dir, name string) int {
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, process := range processes {
		words, _ := os.ReadFile(process + "/cmdline") // none when it ended meanwhile
		if !bytes.HasPrefix(words, []byte("skillboxd\x00user\x00"+name+"\x00")) {
			continue
		}
		status, _ := os.ReadFile(process + "/status")
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if at, err := os.Readlink(process + "/fd/4"); err == nil && at != dir || !strings.HasSuffix(ids, "\t1") {
			continue // another directory's
		}
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
			return pid
		}
	}
	return 0
}
