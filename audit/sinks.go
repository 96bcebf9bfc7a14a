package audit

import "time"

// Sink is where copies of a log's records go besides. It belongs to one Log, which closes it.
type Sink interface {
	// Take is given records in their order, once the log has them. It does not wait, and counts what it has no room for.
	Take(records []Record)
	// Undelivered tells what was given up since it was last asked.
	Undelivered() []Undelivered
	// Close delivers what it can within this time, and gives up the rest.
	Close(within time.Duration) error
}

// Undelivered is a number of this log's records that a sink did not get. They are in the log.
type Undelivered struct {
	Sink    string `json:"sink" doc:"which sink, by its type and address" max:"256"`
	Records uint64 `json:"records" doc:"how many records it did not get since the log said so before"`
	Why     string `json:"why" doc:"the last reason"`
}

func (Undelivered) kind() Kind { return LogUndelivered }

// drainTime is how long Close waits for sinks: a one-shot helper's caller may wait for it.
const drainTime = time.Second

// tell gives a sink what was just written.
func (l *Log) tell(records []Record) {
	if l.opts.Sink != nil {
		l.opts.Sink.Take(records)
	}
}

// missing is what is still to be recorded of sinks.
func (l *Log) missing() []Undelivered {
	if l.opts.Sink != nil {
		l.undelivered = append(l.undelivered, l.opts.Sink.Undelivered()...)
	}
	return l.undelivered
}
