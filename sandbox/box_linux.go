package sandbox

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"skillbox/boxinit"
	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/netpolicy"
	"skillbox/nsjail"
	"skillbox/rootfs"
	"skillbox/seccomp"
)

// Box is a prepared sandbox: every layer is in place and verified, and init waits for the one call.
type Box struct {
	ID     string
	Plan   *Plan
	Phases map[string]float64 // milliseconds, by what was done
	Start  string             // how far it was when its call came, as in helper.Sandbox

	host       *Host
	dir        string
	group      *cgroup.Group // nil where the host has none
	tree       *rootfs.Tree
	network    network
	jail       *nsjail.Jail
	supervisor *seccomp.Supervisor
	watched    *watched // nil where the plan watches nothing
	ids        *block   // its own; nil where the Host's is meant
	session    *Session // nil in a box that serves one call
	preload    *Preload // nil where nothing of the skill has started
	ends       *ends    // of its stdio, with preload
}

const idLetters = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID names a run: 16 characters of lower-case base 32, made by us and never accepted from anybody.
func NewID() string {
	id := make([]byte, 16)
	for i := range id {
		id[i] = idLetters[rand.IntN(len(idLetters))]
	}
	return string(id)
}

// ValidID says that a name could be one that NewID has made.
func ValidID(name string) bool { return len(name) == 16 && strings.Trim(name, idLetters) == "" }

// Prepare builds a box. The plan's layers are compared with what init reports from inside; if one does not hold, it fails with
// *nsjail.VerifyError and nothing is left.
func Prepare(h *Host, plan *Plan, id string) (_ *Box, err error) {
	b := &Box{ID: id, Plan: plan, Phases: map[string]float64{}, Start: helper.Cold, host: h, dir: filepath.Join(h.Dir, id)}
	h.hold(b)
	start := time.Now()
	defer func() {
		b.Phases["prepare_ms"] = Since(start)
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if h.lasts && h.Mode == "root" { // an ordinary user's boxes all have that user's sub-ids
		if b.ids, err = h.block(); err != nil {
			return nil, err
		}
		b.Plan = plan.withIDs(b.ids.ids)
		b.Plan.Tree.IDMaps = &b.ids.maps
		plan = b.Plan
	}
	if err := os.Mkdir(b.dir, 0o711); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	program, err := b.createParts(h, plan)
	if err != nil {
		return nil, err
	}
	jailed := time.Now()
	// Rules are loaded while libcontainer makes the other namespaces.
	opened := make(chan error, 1)
	go func() { opened <- b.openNetwork(h) }()
	ready := sync.OnceValue(func() error { return <-opened })
	b.jail, err = nsjail.Prepare(nsjail.Description{
		ID: id, StateDir: b.tree.State, Spec: b.spec(), Filters: program.Filters, Listener: program.Listener, NeverReached: b.neverReached(), Ready: ready,
	})
	if _ = ready(); err != nil { // which is the network's, if that had one
		return nil, err
	}
	b.Phases["network_ms"] = b.network.ms
	if b.jail.Listener != nil {
		var watcher seccomp.Watcher
		if b.watched = b.newWatched(b.jail.PID()); b.watched != nil {
			watcher = b.watched.observer
		}
		b.supervisor = seccomp.Supervise(b.jail.Listener, plan.Seccomp, watcher)
		if err := b.jail.AwaitReport(); err != nil {
			return nil, err
		}
		if b.watched != nil {
			if err := b.watched.observer.Ready(); err != nil {
				return nil, err
			}
		}
	}
	b.Phases["jail_ms"] = Since(jailed)
	return b, errors.Join(b.confine(), b.verify(h))
}

// Alive says that a box that was prepared still is: nothing has ended its init.
func (b *Box) Alive() bool {
	select {
	case <-b.jail.Gone():
		return false
	default:
		return true
	}
}

// spec is the plan's OCI spec with the paths of this box.
func (b *Box) spec() *specs.Spec {
	spec, linux := *b.Plan.OCI, *b.Plan.OCI.Linux
	spec.Root = &specs.Root{Path: b.tree.Path, Readonly: true}
	linux.Namespaces = slices.Clone(linux.Namespaces)
	for i := range linux.Namespaces {
		if linux.Namespaces[i].Type == specs.NetworkNamespace {
			linux.Namespaces[i].Path = b.network.handle.Path()
		}
	}
	if b.group != nil {
		linux.CgroupsPath = "/" + b.group.Name
	}
	spec.Linux = &linux
	return &spec
}

// createParts makes what does not depend on one another at the same time: the tree, the network namespace and the filter.
func (b *Box) createParts(h *Host, plan *Plan) (*seccomp.Program, error) {
	var (
		network = make(chan error, 1)
		filter  = make(chan error, 1)
		program *seccomp.Program
	)
	go func() { network <- b.network.create() }()
	go func() {
		var err error
		program, err = seccomp.Compile(plan.Seccomp)
		filter <- err
	}()
	start := time.Now()
	var err, errGroup error
	b.tree, err = rootfs.Create(b.dir, &plan.Tree)
	b.Phases["tree_ms"] = Since(start)
	start = time.Now()
	b.group, errGroup = h.group(b.ID)
	b.Phases["group_ms"] = Since(start)
	return program, errors.Join(err, errGroup, <-network, <-filter)
}

func (b *Box) neverReached() []netip.Addr {
	if b.Plan.Network.Path == "none" {
		return nil
	}
	return netpolicy.NeverReached()
}

// confine puts the cgroup's limits in force, now that setting up is over and nothing of the skill's has run.
func (b *Box) confine() error {
	if b.group == nil {
		return nil
	}
	start := time.Now()
	inside, err := b.group.Holds(b.jail.PID())
	if err != nil {
		return err
	}
	if !inside {
		return &nsjail.VerifyError{Problems: []string{"init is not in its control group"}}
	}
	err = b.group.Confine(b.Plan.Group)
	b.Phases["group_ms"] += Since(start)
	return err
}

// kill ends every process of the box. It does not wait.
func (b *Box) kill() {
	if b.group != nil {
		// Init's death does the same, one process after the other; should this fail, that remains.
		_ = b.group.Kill()
	}
	b.jail.Kill()
}

func (b *Box) verify(h *Host) error {
	problems := b.jail.Report.Check(boxinit.Expect{
		UID: b.Plan.IDs.BoxUID, GID: b.Plan.IDs.BoxGID,
		Namespaces: h.Namespaces,
		Seccomp:    true,
		Writable:   b.Plan.Tree.Writable(),
		Devices:    b.Plan.Tree.Devices(),
		Masked:     b.Plan.OCI.Linux.MaskedPaths,
		Interfaces: b.Plan.Network.interfaces(),
		Hostname:   b.Plan.Tree.Hostname,
		Refused:    b.neverReached() != nil,
	})
	if len(problems) > 0 {
		return &nsjail.VerifyError{Problems: problems}
	}
	return nil
}

// Close ends the box, whatever it does, and takes away everything that was made for it.
func (b *Box) Close() error {
	defer b.host.drop(b)
	var errs []error
	if b.jail != nil {
		errs = append(errs, b.jail.Close())
	}
	errs = append(errs, b.watched.close()) // first: what it waits for may never come
	if b.supervisor != nil {
		errs = append(errs, b.supervisor.Close())
	}
	if b.ends != nil {
		b.ends.close()
	}
	errs = append(errs, b.network.close())
	if b.tree != nil {
		errs = append(errs, b.tree.Close())
	}
	if b.group != nil {
		errs = append(errs, b.group.Close())
	}
	if err := os.Remove(b.dir); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	switch {
	case b.ids == nil:
	case err != nil: // who knows what there is still of these users
		err = errors.Join(err, b.ids.close())
	default:
		err = b.host.giveBack(b.ids)
	}
	b.ids = nil
	return err
}

// Leave takes away only what outlives this process and its namespaces.
func (b *Box) Leave() error {
	err := b.network.leave()
	if b.group == nil {
		return err
	}
	return errors.Join(err, b.group.Close())
}

// Since is the time that has passed, in milliseconds.
func Since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }
