// calls makes calls through the Go client, for the bench: it reads what to do as JSON from standard input and writes what each call took,
// in milliseconds, to standard output. Between two calls it runs the same program without a sandbox.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"skillbox/client"
)

type task struct {
	Bundle, Policy string
	Words          []string
	Plain          []string // what runs without a sandbox; Words if left out
	Mode           string   // of the client; "user" if left out
	Times          int
	Every          time.Duration
	Clients        int // more than 1 make calls at a time, without a pause and with no program between; only Took tells of them
}

type answer struct {
	Call, Plain []float64
	Phases      map[string][]float64
	Ready       int // calls that found a ready box
	Took        float64
	Starts      map[string]int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func run() error {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return err
	}
	a := answer{Phases: map[string][]float64{}, Starts: map[string]int{}}
	plain := t.Plain
	if plain == nil {
		plain = t.Words
	}
	call := client.Call{Bundle: t.Bundle, Policy: t.Policy, Words: t.Words, Mode: cmp.Or(t.Mode, "user")}
	if t.Clients > 1 {
		var err error
		if a.Took, err = together(t, call); err != nil {
			return err
		}
		t.Times = -1
	}
	for i := range t.Times + 1 {
		time.Sleep(t.Every / 2)
		began := time.Now()
		r, err := client.Exec(context.Background(), call)
		took := millis(began)
		if err != nil {
			return err
		}
		if !r.Success {
			return fmt.Errorf("a call came to %s, exit code %d", r.Verdict, r.ExitCode)
		}
		time.Sleep(t.Every / 2)
		began = time.Now()
		if err := exec.Command(plain[0], plain[1:]...).Run(); err != nil {
			return err
		}
		if i == 0 { // which starts the service
			continue
		}
		a.Call, a.Plain = append(a.Call, took), append(a.Plain, millis(began))
		for name, ms := range r.Phases {
			a.Phases[name] = append(a.Phases[name], ms)
		}
		a.Starts[r.Sandbox.Start]++
		if r.Phases["prepare_ms"] == 0 {
			a.Ready++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// together makes calls from several goroutines, after one that starts the service.
func together(t task, call client.Call) (took float64, err error) {
	jobs, failed := make(chan struct{}), make(chan error, t.Clients)
	one := func() error {
		r, err := client.Exec(context.Background(), call)
		if err == nil && !r.Success {
			err = fmt.Errorf("a call came to %s, exit code %d", r.Verdict, r.ExitCode)
		}
		return err
	}
	if err := one(); err != nil {
		return 0, err
	}
	began := time.Now()
	var all sync.WaitGroup
	for range t.Clients {
		all.Go(func() {
			for range jobs {
				if err := one(); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for range t.Times {
		jobs <- struct{}{}
	}
	close(jobs)
	all.Wait()
	took = millis(began)
	select {
	case err = <-failed:
	default:
	}
	return took, err
}

func millis(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
