package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"

	"skillbox/helper"
	"skillbox/sandbox"
	"skillbox/wire"
)

// link is what a client says after its request.
type link struct {
	values chan *helper.Values
	cancel chan struct{}
	resize chan helper.Resize
	closed chan struct{} // the client is gone
	over   chan struct{} // closed by the first cancel, or when the client is gone: for what comes before the run
	once   sync.Once
	begun  sync.Once
}

// listen reads messages until the client is gone; that ends the run at once.
func listen(conn *wire.Conn) *link {
	l := &link{
		values: make(chan *helper.Values, 1), cancel: make(chan struct{}, 1),
		resize: make(chan helper.Resize, 1), closed: make(chan struct{}), over: make(chan struct{}),
	}
	go func() {
		defer close(l.closed)
		defer l.kill()
		canceled := false
		for {
			var m helper.Message
			files, err := conn.Receive(&m)
			wire.CloseAll(files)
			if err != nil {
				return
			}
			switch {
			case m.Values != nil:
				select {
				case l.values <- m.Values:
				default: // a second answer to one question
				}
			case m.Cancel != nil && canceled:
				l.kill()
			case m.Cancel != nil:
				canceled = true
				l.cancel <- struct{}{}
				l.end()
			case m.Resize != nil:
				select {
				case l.resize <- *m.Resize:
				default:
				}
			}
		}
	}()
	return l
}

func (l *link) kill() {
	l.once.Do(func() { close(l.cancel) })
	l.end()
}

func (l *link) end() { l.begun.Do(func() { close(l.over) }) }

// errCanceled is why a call did not come to its run.
var errCanceled = errors.New("canceled by the caller before the skill was started")

// call waits for the client's values and puts the call together.
func (l *link) call(d *decision, r *helper.Request, f *files) (sandbox.Call, error) {
	values := &helper.Values{}
	if d.asks() {
		select {
		case values = <-l.values:
		case <-l.over:
			return sandbox.Call{}, errCanceled
		}
	}
	for _, name := range d.plan.Secrets {
		if _, ok := values.Secrets[name]; !ok {
			return sandbox.Call{}, &helper.Error{Message: fmt.Sprintf("the secret %s is not set in the caller's environment", name), Field: "env.secrets"}
		}
	}
	call := sandbox.Call{
		Argv: d.argv, Dir: cmp.Or(r.WorkDir, d.dir), Env: values.Env, Secrets: values.Secrets, Stdio: f.stdio,
		TTY: r.TTY, Rows: r.Rows, Cols: r.Cols, Term: r.Term, Cancel: l.cancel, Resize: l.resize,
	}
	if f.params != nil {
		call.Params = io.MultiReader(bytes.NewReader(f.read), f.params)
	}
	for i, name := range r.Inputs {
		call.Inputs = append(call.Inputs, sandbox.Input{Name: name, Content: f.inputs[i]})
	}
	return call, nil
}
