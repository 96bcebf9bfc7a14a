package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// Answer is what a request came to: a Result, or for all operations but OpExec a document.
type Answer struct {
	Result *Result
	Plan   json.RawMessage
}

// Do sends a request with its descriptors and waits for the answer. environ is asked for the values that the grant names.
// An error means that skillboxd could not be asked, or died.
func (p *Process) Do(r *Request, fds []int, environ func(name string) (string, bool)) (*Answer, error) {
	if err := p.Conn.Send(r, fds...); err != nil {
		return nil, err
	}
	for {
		var reply Reply
		files, err := p.Conn.Receive(&reply)
		wire.CloseAll(files)
		if errors.Is(err, io.EOF) {
			return nil, errors.New("helper: skillboxd ended without an answer")
		}
		if err != nil {
			return nil, err
		}
		switch {
		case reply.Result != nil:
			return &Answer{Result: reply.Result}, nil
		case reply.Plan != nil:
			return &Answer{Plan: reply.Plan}, nil
		case reply.Granted != nil:
			// EPIPE: skillboxd has ended meanwhile, and its answer, which says why, waits to be received.
			if err := p.Conn.Send(Message{Values: valuesFor(reply.Granted, environ)}); err != nil && !errors.Is(err, unix.EPIPE) {
				return nil, fmt.Errorf("helper: %w", err)
			}
		}
	}
}

// valuesFor picks what was granted from the environment, and nothing else.
func valuesFor(g *Granted, environ func(string) (string, bool)) *Values {
	pick := func(names []string) map[string]string {
		values := map[string]string{}
		for _, name := range names {
			if value, ok := environ(name); ok {
				values[name] = value
			}
		}
		return values
	}
	return &Values{Env: pick(g.Env), Secrets: pick(g.Secrets)}
}
