package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"skillbox/client"
	"skillbox/cmd/cli"
	"skillbox/helper"
)

// publishing are ports of a box and where they are to be reached.
type publishing struct {
	asked []string
	file  string

	listeners []*client.Listener
}

func (p *publishing) register(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&p.asked, "publish", nil, "`PORT=ADDRESS` at which a listener of the skill is to be reached, where the policy names the port (network.ingress): the path of a unix socket, or 127.0.0.1:0; repeatable")
	f.StringVar(&p.file, "publish-file", "", "`file` that takes as JSON where ports are published, before the skill starts")
}

// open makes the sockets, with the caller's rights, and says where they are.
func (p *publishing) open() error {
	for _, asked := range p.asked {
		port, at, ok := strings.Cut(asked, "=")
		if !ok || port == "" || at == "" {
			return &helper.Error{Message: fmt.Sprintf("--publish %s does not say where", asked), Hint: "--publish 8080=127.0.0.1:0, or 8080=./socket"}
		}
		l, err := client.Listen(port, at)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
	}
	for _, l := range p.listeners {
		fmt.Fprintf(os.Stderr, "skillbox: port %s is at %s\n", l.Port, cli.VisibleLines(l.Address))
	}
	if p.file == "" {
		return nil
	}
	told := []map[string]string{}
	for _, l := range p.listeners {
		told = append(told, map[string]string{"port": l.Port, "address": l.Address})
	}
	text, err := json.Marshal(told)
	if err != nil {
		return err
	}
	return writeWhole(p.file, append(text, '\n'))
}

// writeWhole makes or replaces a file so that who reads it finds all of it or none.
func writeWhole(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".skillbox-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// add passes the sockets on.
func (p *publishing) add(r *helper.Request, fds []int) []int {
	for _, l := range p.listeners {
		fds = l.Pass(r, fds)
	}
	return fds
}

// close ends what is still this process's.
func (p *publishing) close() error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.listeners = nil
	return errors.Join(errs...)
}

// leave lets a session have the sockets.
func (p *publishing) leave() error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Leave())
	}
	p.listeners = nil
	return errors.Join(errs...)
}
