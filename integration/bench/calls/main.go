// calls makes calls through the Go client, for the bench: it reads what to do as JSON from standard input and writes what each call took,
// in milliseconds, to standard output. Between two calls it runs the same program without a sandbox.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"skillbox/client"
)

type task struct {
	Bundle, Policy string
	Words          []string
	Times          int
	Every          time.Duration
}

type answer struct {
	Call, Plain []float64
	Phases      map[string][]float64
	Ready       int // calls that found a ready box
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
	a := answer{Phases: map[string][]float64{}}
	call := client.Call{Bundle: t.Bundle, Policy: t.Policy, Words: t.Words, Mode: "user"}
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
		if err := exec.Command(t.Words[0], t.Words[1:]...).Run(); err != nil {
			return err
		}
		if i == 0 { // which starts the service
			continue
		}
		a.Call, a.Plain = append(a.Call, took), append(a.Plain, millis(began))
		for name, ms := range r.Phases {
			a.Phases[name] = append(a.Phases[name], ms)
		}
		if r.Phases["prepare_ms"] == 0 {
			a.Ready++
		}
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

func millis(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }
