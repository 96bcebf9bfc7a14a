package helper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"skillbox/wire"
)

// Answer is what a request came to: a Result, or for all operations but OpExec a document.
type Answer struct {
	Result *Result
	Plan   json.RawMessage
}

// ErrRetired says that the service did nothing, because it leaves, or died before it had read what it was asked: the next one is to be asked.
var ErrRetired = errors.New("helper: the service is leaving")

// errUnanswered is what a skillboxd's death looks like, whenever it comes.
var errUnanswered = errors.New("helper: skillboxd ended without an answer")

// died says that an error of the connection is the other end's death. ECONNRESET is that it had not read all that we sent (unix(7)).
func died(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// Declined says that the system service does not serve this caller.
type Declined struct{ Why *Error }

func (d *Declined) Error() string { return d.Why.Error() }

func (d *Declined) Unwrap() error { return d.Why }

// Do sends a request with its descriptors and waits for the answer. environ is asked for the values that the grant names.
// An error means that skillboxd could not be asked, or died.
func (p *Peer) Do(r *Request, fds []int, environ func(name string) (string, bool)) (*Answer, error) {
	if err := r.checkText(); err != nil {
		return nil, err
	}
	err := p.send(r, fds)
	unsent := died(err) // an answer may wait all the same
	if err != nil && !unsent {
		return nil, err
	}
	for first := true; ; first = false {
		var reply Reply
		files, err := p.Conn.Receive(&reply)
		wire.CloseAll(files)
		if died(err) {
			return nil, p.whyNone(first && (unsent || errors.Is(err, unix.ECONNRESET)))
		}
		if err != nil {
			return nil, err
		}
		switch {
		case reply.Result != nil:
			return &Answer{Result: reply.Result}, nil
		case reply.Retired:
			return nil, ErrRetired
		case reply.Declined != nil:
			return nil, &Declined{reply.Declined}
		case reply.Plan != nil:
			return &Answer{Plan: reply.Plan}, nil
		case reply.Denied != nil:
			if p.Denied != nil {
				p.Denied(reply.Denied)
			}
		case reply.Granted != nil:
			values, err := valuesFor(reply.Granted, environ)
			if err != nil {
				return nil, err
			}
			// EPIPE: skillboxd has ended meanwhile, and its answer, which says why, waits to be received.
			if err := p.Conn.Send(Message{Values: values}); err != nil && !errors.Is(err, unix.EPIPE) {
				return nil, fmt.Errorf("helper: %w", err)
			}
		}
	}
}

// whyNone tells a service that died with the request unread, where it is all that was sent, from one that may have done anything.
func (p *Peer) whyNone(unread bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if unread && p.process == nil && !p.told {
		return ErrRetired
	}
	return errUnanswered
}

// send sends the request, and then what was to be told meanwhile.
func (p *Peer) send(r *Request, fds []int) error {
	if err := p.Conn.Send(r, fds...); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.told = true, len(p.early) > 0
	for _, m := range p.early {
		if err := p.Conn.Send(m); err != nil && !died(err) { // of its death Do learns when it listens
			return err
		}
	}
	return nil
}

// Tell says something about the request of Do, at any time and not before the request itself. An error means that skillboxd has ended,
// which Do reports.
func (p *Peer) Tell(m Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked {
		p.early = append(p.early, m)
		return nil
	}
	p.told = true
	return p.Conn.Send(m)
}

// valuesFor picks what was granted from the environment, and nothing else.
func valuesFor(g *Granted, environ func(string) (string, bool)) (*Values, error) {
	v := &Values{Env: map[string]string{}, Secrets: map[string]string{}}
	for _, list := range []struct {
		names []string
		into  map[string]string
	}{{g.Env, v.Env}, {g.Secrets, v.Secrets}} {
		for _, name := range list.names {
			value, ok := environ(name)
			if !ok {
				continue
			}
			if err := checkText("the value of "+name, value); err != nil {
				return nil, err
			}
			list.into[name] = value
		}
	}
	return v, nil
}

// checkText refuses what JSON would change without a word: it knows only UTF-8. The value itself is not shown, it may be a secret.
func checkText(what, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return &Error{Message: what + " is not UTF-8", Hint: "bytes of any kind go in as a file: --input or --params @FILE"}
}

func (r *Request) checkText() error {
	errs := []error{checkText("--entry", r.Entry), checkText("the name of the policy", r.PolicyName)}
	for i, word := range r.Words {
		errs = append(errs, checkText(fmt.Sprintf("word %d after --", i+1), word))
	}
	for i, word := range r.Command {
		errs = append(errs, checkText(fmt.Sprintf("word %d of the command", i+1), word))
	}
	for _, b := range r.Binds {
		errs = append(errs, checkText(b.Flag, b.Host), checkText(b.Flag, b.Path))
	}
	for _, p := range r.Ways {
		errs = append(errs, checkText("a path to the policy or the manifest", p))
	}
	for i, name := range r.Inputs {
		errs = append(errs, checkText(fmt.Sprintf("the name of input %d", i+1), name))
	}
	for name, value := range r.EnvSet {
		errs = append(errs, checkText("an --env name", name), checkText("--env "+name, value))
	}
	for _, name := range r.EnvPass {
		errs = append(errs, checkText("an --env name", name))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
