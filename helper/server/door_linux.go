package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/wire"
)

// Door is where a service's callers come from if somebody else decides who they are.
type Door interface {
	// Next waits for one, with the process that asks and the groups that it was in. Nil without an error is that none came; io.EOF, that none
	// will.
	Next(wait time.Duration) (*wire.Conn, helper.Asker, []uint32, error)
	// Leave asks for nobody else to be sent. Who was sent before still comes, and then io.EOF.
	Leave() error
}

// NewWorkerLog logs to stderr, whoever reads it, which user's worker says what.
func NewWorkerLog(uid uint32) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: clip})).With("uid", uid)
}

// visitor is who has connected. Asker and groups are known where somebody else let it in.
type visitor struct {
	conn   *wire.Conn
	who    unix.Ucred
	asker  *helper.Asker
	groups []uint32
}

// arrival waits for a connection, from wherever they come; without one it returns nil.
func (s *Service) arrival(wait time.Duration) (*visitor, error) {
	if s.Door == nil {
		conn, who, err := wire.Accept(int(s.Listening.Fd()), wait)
		if conn == nil || err != nil {
			return nil, err
		}
		return &visitor{conn: conn, who: who}, nil
	}
	conn, asker, groups, err := s.Door.Next(wait)
	if conn == nil || err != nil {
		return nil, err
	}
	who, err := conn.Owner()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &visitor{conn, who, &asker, groups}, nil
}

// seats is how many connections are served at a time.
func (s *Service) seats() int64 {
	if s.Quota != nil {
		return s.Quota.Connections
	}
	return maxConnections
}

// seat takes a place for a connection, or sends it away: behind a door nobody waits unseen.
func (s *Service) seat(slots chan<- struct{}, conn *wire.Conn) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	_ = conn.SendNow(helper.Reply{Result: failure(s.quota.spent("connections", "%d of your connections are open", cap(slots)))}) // who does not read it does not want to know
	conn.Close()
	s.ended()
	return false
}

// leaveTime is how long whoever sends callers may take to stop it.
const leaveTime = 10 * time.Second

// leaveDoor answers who was sent before it was known that the service leaves.
func (s *Service) leaveDoor(answer helper.Reply) error {
	if err := s.Door.Leave(); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < leaveTime; {
		v, err := s.arrival(acceptTime)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if v != nil {
			s.sendAway(v.conn, answer)
		}
	}
	return fmt.Errorf("server: callers were still sent %s after the service had left", leaveTime)
}

// foreign says why a client is none of a service's that others let it into: what it asks for may be something else to us, or unknown.
func (s *Service) foreign(r *helper.Request) *helper.Error {
	if s.Door == nil || r.Version == helper.Version && (r.Build == "" || r.Build == s.Build || helper.Served(r.Op)) {
		return nil
	}
	return &helper.Error{
		Message: "the system service that runs is of another build than this client's skillboxd",
		Hint:    "install both from one build and restart the service (systemctl restart skillboxd), or use --mode user or oneshot",
	}
}
