package broker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"

	"skillbox/audit"
	"skillbox/helper"
)

// events are what a worker tells of its calls. Whose they are is not its to say.
func (w *worker) events(packed []json.RawMessage) ([]audit.Event, error) {
	all := make([]audit.Event, 0, len(packed))
	for _, text := range packed {
		e, err := audit.Unpack(text)
		if err != nil {
			return nil, err
		}
		if e.Caller == nil {
			return nil, errors.New("broker: a record of nobody's")
		}
		e.Caller.UID, e.Caller.GID = int(w.uid), int(w.gid)
		all = append(all, e)
	}
	return all, nil
}

// perErrand is how many bytes of records go with one errand: a frame holds more.
const perErrand = 1 << 20

// Append has the broker write events of the worker's calls into the machine's audit log. Those of one call that are too many for one errand
// may be there in part when there is an error.
func (e *Errands) Append(events ...audit.Event) error {
	var some []json.RawMessage
	size := 0
	send := func() error {
		if len(some) == 0 {
			return nil
		}
		_, err := e.ask(Ask{Records: some})
		some, size = nil, 0
		return err
	}
	for _, event := range events {
		text, err := audit.Pack(event)
		if err != nil {
			return err
		}
		if size+len(text) > perErrand {
			if err := send(); err != nil {
				return err
			}
		}
		some, size = append(some, text), size+len(text)
	}
	return send()
}

// note is what travels with a connection to its worker: the caller's process and groups.
func (c *caller) note() []byte {
	note := make([]byte, noteHead, noteHead+4*len(c.groups))
	binary.LittleEndian.PutUint32(note, uint32(c.pid))
	copy(note[4:], c.process)
	for _, g := range c.groups {
		note = binary.LittleEndian.AppendUint32(note, g)
	}
	return note
}

// noteHead is the length of a note without groups. A process's name has at most 15 bytes (TASK_COMM_LEN).
const noteHead = 4 + 16

func readNote(note []byte) (helper.Asker, []uint32, error) {
	if len(note) < noteHead {
		return helper.Asker{}, nil, errors.New("broker: a connection without a note")
	}
	asker := helper.Asker{PID: int(binary.LittleEndian.Uint32(note)), Process: strings.TrimRight(string(note[4:noteHead]), "\x00")}
	groups := make([]uint32, (len(note)-noteHead)/4)
	for i := range groups {
		groups[i] = binary.LittleEndian.Uint32(note[noteHead+4*i:])
	}
	return asker, groups, nil
}
