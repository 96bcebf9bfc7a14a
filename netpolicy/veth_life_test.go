//go:build linux

package netpolicy

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// left are the links, rules and locks in this namespace.
func left(t *testing.T) (all []string) {
	t.Helper()
	for file, word := range map[string]string{"dev": " " + linkPrefix, "unix": "@skillbox"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + file)
		try(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(" "+line, word) {
				all = append(all, line)
			}
		}
	}
	for source := range sources(t) {
		if linkRange4.Contains(source) || linkRange6.Contains(source) {
			all = append(all, "a connection from "+source.String())
		}
	}
	conn, err := nftables.New()
	try(t, err)
	tables, err := conn.ListTables()
	try(t, err)
	for _, table := range tables {
		all = append(all, "table "+table.Name)
	}
	return all
}

// sources are the addresses that began the connections of this namespace.
func sources(t *testing.T) map[netip.Addr]bool {
	t.Helper()
	table, err := openFlowTable()
	try(t, err)
	defer table.Close()
	flows, err := table.do(ctGet, netlink.Dump, unix.AF_UNSPEC, nil)
	try(t, err)
	all := map[netip.Addr]bool{}
	for _, flow := range flows {
		all[began(flow)] = true
	}
	return all
}

// nothingLeft waits for the kernel, which removes interfaces after their namespaces.
func nothingLeft(t *testing.T) {
	t.Helper()
	var what []string
	for range 500 {
		if what = left(t); len(what) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left: %q", what)
}

func TestManyLinksLeaveNothingBehind(t *testing.T) {
	if !hosted(t) {
		return
	}
	ls, err := openLinks()
	try(t, err)
	other, err := openLinks()
	try(t, err)
	const all, together = 200, 64
	goroutines := runtime.NumGoroutine()
	var mu sync.Mutex
	var attaching, closing []time.Duration
	slots := make(chan bool, together)
	var wg sync.WaitGroup
	for i := range all {
		slots <- true
		ns := namespace(t)
		wg.Go(func() {
			defer func() { <-slots }()
			defer ns.Close()
			start := time.Now()
			l, err := []*links{ls, other}[i%2].attach(ns, LinkDescription{ID: fmt.Sprintf("%013d", i), IPv6: true, Opened: prefixes("169.254.1.0/24")})
			if err != nil {
				t.Error(err)
				return
			}
			attached := time.Now()
			for range 2 {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			attaching, closing = append(attaching, attached.Sub(start)), append(closing, time.Since(attached))
		})
	}
	wg.Wait()
	nothingLeft(t)
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
	if len(attaching) < all {
		t.Fatalf("%d links of %d", len(attaching), all)
	}
	slices.Sort(attaching)
	slices.Sort(closing)
	t.Logf("%d at a time: attach median %v, longest %v; close median %v, longest %v",
		together, attaching[all/2], attaching[all-1], closing[all/2], closing[all-1])
	try(t, ls.Close())
	try(t, other.Close())
}

// The table comes with the first box and goes with the last, whoever's they are.
func TestTheHostsTableComesAndGoes(t *testing.T) {
	if !hosted(t) {
		return
	}
	var wg sync.WaitGroup
	for i := range 6 {
		table, err := openHostTable()
		try(t, err)
		l := &link{Name: fmt.Sprintf("%s%013d", linkPrefix, i)}
		l.address(i, true)
		wg.Go(func() {
			for range 100 {
				if err := errors.Join(table.add(l, nil), table.remove(l.Name)); err != nil {
					t.Error(err)
					break
				}
			}
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	nothingLeft(t)
}

func TestALinksConnectionsAreForgotten(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	known := func(l *link) bool { all := sources(t); return all[l.Box4] || all[l.Box6] }
	box, l := w.box()
	other, kept := w.box()
	for _, ns := range []*os.File{box, other} {
		for _, host := range []string{serverAddr4, serverAddr6} {
			if _, err := w.ask(ns, patience, "udp", "", host, server.port); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all := sources(t); !all[l.Box4] || !all[l.Box6] || !known(kept) {
		t.Fatal("the kernel does not tell of connections")
	}
	try(t, l.Close())
	if known(l) {
		t.Error("a closed link's connections are known")
	}
	if !known(kept) {
		t.Error("another's connections are forgotten")
	}
	for _, a := range []netip.Addr{kept.Box4, kept.Box6} {
		w.links.flows.forgetEach(a)
	}
	if known(kept) {
		t.Error("as for older kernels: they are still known")
	}
}
