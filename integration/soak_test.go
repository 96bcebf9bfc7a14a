//go:build linux

package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/helper"
)

const (
	// soakClients call at a time, of each service as many as of another.
	soakClients = 8
	// Between two rounds nobody calls, and it is looked for what is left. In the last calmRounds nobody kills the services, so that it shows
	// whether they grow.
	soakRounds, calmRounds = 10, 5
)

// TestSoak makes SOAK_CALLS calls of every kind, of services of root's and an ordinary user's, while clients, skills and services are
// killed and bundles and policies change. Every answer must be one that the call may get, with nothing in it of another call, and
// nothing may stay behind or grow. SOAK_SEED repeats the choices of a run, though not the moments.
func TestSoak(t *testing.T) {
	calls, seed := soakSize(t)
	inTheWorld(t, func(t *testing.T, w *world) {
		leavesNothing(t)
		w.leavesNothing(t)
		t.Logf("SOAK_SEED=%d SOAK_CALLS=%d", seed, calls)
		chance := rand.New(rand.NewPCG(seed, 0))
		var fleets []*fleet
		for _, m := range modes() {
			if m != singleID { // what it differs in is tried by the other tests
				fleets = append(fleets, newFleet(t, w, m, rand.New(rand.NewPCG(chance.Uint64(), 0))))
			}
		}
		began := time.Now()
		for round := range soakRounds {
			share := calls*(round+1)/soakRounds - calls*round/soakRounds
			var all sync.WaitGroup
			for i, f := range fleets {
				all.Go(func() {
					f.sail(share*(i+1)/len(fleets)-share*i/len(fleets), soakClients/len(fleets), round < soakRounds-calmRounds)
				})
			}
			all.Wait()
			w.forget() // who connected
			for _, f := range fleets {
				f.rest(t, round)
			}
			t.Logf("round %d of %d: %d calls in %s", round+1, soakRounds, calls*(round+1)/soakRounds, time.Since(began).Round(time.Second))
			if t.Failed() {
				break
			}
		}
		for _, f := range fleets {
			f.report(t, time.Since(began))
		}
	})
}

func soakSize(t *testing.T) (calls int, seed uint64) {
	t.Helper()
	calls, seed = load(400), rand.Uint64()
	var err error
	if text := os.Getenv("SOAK_CALLS"); text != "" {
		if calls, err = strconv.Atoi(text); err != nil || calls < soakRounds {
			t.Fatalf("SOAK_CALLS=%s: a number from %d up: %v", text, soakRounds, err)
		}
	}
	if text := os.Getenv("SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED=%s: %v", text, err)
		}
	}
	return calls, seed
}

// fleet is a service with its clients.
type fleet struct {
	w       *world
	s       *service
	chance  *rand.Rand // for what is decided between calls
	kinds   []*kind
	editing editing
	deaths  deaths
	death   int // in how many calls the next one comes

	mu       sync.Mutex
	outcomes map[string]int // by kind and verdict
	calls    int
	lost     int // answers that a service's death cost
	killed   int // clients
	struck   int // skills and ready boxes
	found    int // calls that found a box ready
	wrong    []string
	held     []held // after each round
}

func newFleet(t *testing.T, w *world, m mode, chance *rand.Rand) *fleet {
	t.Helper()
	f := &fleet{w: w, s: m.service(t), chance: chance, outcomes: map[string]int{}}
	f.s.idle = "10m"
	f.s.within = w.host.Run
	f.kinds, f.death = f.everyKind(t, m), f.nextDeath()
	return f
}

// sail makes calls by a number of clients at a time.
func (f *fleet) sail(calls, clients int, deadly bool) {
	var all sync.WaitGroup
	jobs := make(chan func())
	for range clients {
		all.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}
	for n := range calls {
		chance := rand.New(rand.NewPCG(f.chance.Uint64(), f.chance.Uint64()))
		jobs <- func() { f.call(chance) }
		if n%17 == 0 {
			f.editing.change(f)
		}
		if f.death--; deadly && f.death <= 0 {
			how := f.chance.IntN(4)
			all.Go(func() { f.killService(how) })
			f.death = f.nextDeath()
		}
	}
	close(jobs)
	all.Wait()
}

// nextDeath is after how many calls the service is killed.
func (f *fleet) nextDeath() int { return 50 + f.chance.IntN(300) }

func (f *fleet) note(kind, outcome string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.outcomes[kind+": "+outcome]++
}

// fault notes a wrong answer. The first ones tell enough.
func (f *fleet) fault(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, a...))
}

// count notes what an answer says of itself.
func (f *fleet) count(r *helper.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if wasReady(r) {
		f.found++
	}
}

// report sums up.
func (f *fleet) report(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("%s: %d calls in %s, %.1f a second; %d found a box ready; killed: %d services, %d clients, %d skills and ready boxes; %d answers lost to a service's death; %d changes of bundle and policy; %d wrong answers",
		f.s.mode, f.calls, took.Round(time.Second), float64(f.calls)/took.Seconds(), f.found, len(f.deaths.all), f.killed, f.struck, f.lost, f.editing.done, len(f.wrong))
	for _, name := range slices.Sorted(maps.Keys(f.outcomes)) {
		t.Logf("%s: %6d %s", f.s.mode, f.outcomes[name], name)
	}
	for i, h := range f.held {
		t.Logf("%s: after round %2d: %s", f.s.mode, i+1, h)
	}
	for i, text := range f.wrong {
		if i < 20 {
			t.Errorf("%s: %s", f.s.mode, text)
		}
	}
	f.grows(t)
}

// write replaces a file as a whole, so that nobody reads half of it.
func (f *fleet) write(t interface{ Fatal(...any) }, path, content string) {
	if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if cred := f.s.mode.credential(); cred != nil {
		if err := os.Chown(path+".new", int(cred.Uid), int(cred.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// scratch is a directory for the files that calls bring.
func (f *fleet) scratch(nonce string) string { return filepath.Join(f.s.at, strings.ToLower(nonce)) }
