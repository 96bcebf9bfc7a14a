// Package sink brings copies of an audit log's records to where else they are wanted: journald, syslog, an OpenTelemetry collector. The log is
// what proves something; a sink may miss records, and then the log says how many.
package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"skillbox/audit"
)

// Config says where records go.
type Config struct {
	Type     string // journald, syslog or otlp
	Socket   string // of the first two; "" is the usual one
	Endpoint string // of otlp
	Token    string // of otlp, sent as a bearer token; "" is none
	Queue    int    // records that may wait; 0 is 8192
}

// Warn is told what an administrator should know: a message, and names with values as log/slog has them. It is called by several goroutines.
type Warn func(message string, about ...any)

// target is one place that records go to. One goroutine uses it.
type target interface {
	name() string
	reach(ctx context.Context) error // tries whether it is there
	send(ctx context.Context, batch []audit.Record) outcome
	close() error
}

// outcome is what became of a batch.
type outcome struct {
	done    int           // records from the batch's beginning that are settled
	refused uint64        // of these, those that the target will never take
	why     error         // the reason of that, or that not all are settled
	after   time.Duration // how soon the rest may come; 0 leaves it to us
	busy    bool          // the target is there, and takes more in a moment
}

// Set is several sinks as one. It is an audit.Sink.
type Set []*queue

// Open begins to deliver. A target that is not there is no error: records wait for it, and warn is told. A nil warn is told nothing.
func Open(all []Config, warn Warn) (Set, error) {
	if warn == nil {
		warn = func(string, ...any) {}
	}
	var set Set
	for _, c := range all {
		to, err := c.target()
		if err != nil {
			return nil, errors.Join(err, set.Close(0))
		}
		set = append(set, newQueue(to, c.Queue, warn))
	}
	return set, nil
}

func (c *Config) target() (target, error) {
	switch c.Type {
	case "journald":
		return newDatagrams("journald", c.Socket, "/run/systemd/journal/socket", journalEntry), nil
	case "syslog":
		return newDatagrams("syslog", c.Socket, "/dev/log", syslogMessage), nil
	case "otlp":
		return newOTLP(c.Endpoint, c.Token)
	}
	return nil, fmt.Errorf("sink: %q: there are journald, syslog and otlp", c.Type)
}

// Take is audit.Sink's.
func (s Set) Take(records []audit.Record) {
	for _, q := range s {
		q.take(records)
	}
}

// Undelivered is audit.Sink's.
func (s Set) Undelivered() (all []audit.Undelivered) {
	for _, q := range s {
		if u, some := q.undelivered(); some {
			all = append(all, u)
		}
	}
	return all
}

// Close is audit.Sink's.
func (s Set) Close(within time.Duration) error {
	for _, q := range s {
		q.end(within)
	}
	var errs []error
	for _, q := range s {
		<-q.ended
		errs = append(errs, q.to.close())
	}
	return errors.Join(errs...)
}
