//go:build linux

package netpolicy

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Another process: it holds a link until it is killed, or sweeps.
func TestHelperThatIsKilled(t *testing.T) {
	if os.Getenv("SKILLBOX_VETH_HELPER") == "" {
		t.Skip("started by another test")
	}
	ls, err := openLinks()
	try(t, err)
	if os.Getenv("SKILLBOX_VETH_HELPER") == "sweep" {
		try(t, ls.sweep())
		return
	}
	_, err = ls.attach(os.NewFile(3, "box"), LinkDescription{ID: os.Getenv("SKILLBOX_VETH_HELPER"), IPv6: true})
	try(t, err)
	fmt.Println("attached")
	time.Sleep(time.Minute)
}

func helper(word string, box *os.File) *exec.Cmd {
	c := exec.Command("/proc/self/exe", "-test.run=^TestHelperThatIsKilled$", "-test.v")
	c.Env = append(os.Environ(), "SKILLBOX_VETH_HELPER="+word)
	c.ExtraFiles = []*os.File{box}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return c
}

func TestAKilledHelpersLinksAreSwept(t *testing.T) {
	if !hosted(t) {
		return
	}
	w := newWorld(t)
	server := w.listen(w.internet)
	box, l := w.box()
	dead := namespace(t)
	h := helper("dead", dead)
	out, err := h.StdoutPipe()
	try(t, err)
	try(t, h.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "attached"; {
	}
	if _, err := w.ask(dead, patience, "tcp", "", serverAddr4, server.port); err != nil {
		t.Fatal(err)
	}
	before, err := w.links.table.links()
	try(t, err)
	try(t, w.links.sweep())
	if now, _ := w.links.table.links(); len(before) != 2 || len(now) != 2 {
		t.Errorf("two links have rules: %v, after a sweep: %v", before, now)
	}

	try(t, h.Process.Kill())
	h.Wait()
	if text, err := helper("sweep", dead).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	now, err := w.links.table.links()
	try(t, err)
	if _, mine := now[l.Name]; !mine || len(now) != 1 {
		t.Errorf("after the sweep there are rules of %v", now)
	}
	if _, err := netlink.LinkByName(linkPrefix + "dead"); err == nil {
		t.Error("the interface is still there")
	}
	gone := &link{}
	gone.address(before[linkPrefix+"dead"], true)
	if sources(t)[gone.Box4] {
		t.Error("its connections are still known")
	}
	if _, err := w.ask(dead, hurry, "tcp", "", serverAddr4, server.port); err == nil {
		t.Error("a link without rules")
	}
	for _, host := range []string{serverAddr4, serverAddr6} {
		if _, err := w.ask(box, patience, "tcp", "", host, server.port); err != nil {
			t.Errorf("the living: %v", err)
		}
	}
}

func TestSweepsAndLinksDoNotDisturbOneAnother(t *testing.T) {
	if !hosted(t) {
		return
	}
	ls, err := openLinks()
	try(t, err)
	stop := make(chan bool)
	var sweeps, wg sync.WaitGroup
	for range 2 {
		sweeper, err := openLinks()
		try(t, err)
		sweeps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := sweeper.sweep(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := range 4 {
		ns := make([]*os.File, 20)
		for n := range ns {
			ns[n] = namespace(t)
		}
		wg.Go(func() {
			for n, ns := range ns {
				l, err := ls.attach(ns, LinkDescription{ID: fmt.Sprintf("%d-%d", i, n), IPv6: true})
				if err != nil {
					t.Error(err)
					continue
				}
				if links, err := ls.table.links(); err != nil {
					t.Error(err)
				} else if _, there := links[l.Name]; !there {
					t.Error("the rules of a link are gone")
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				ns.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	sweeps.Wait()
	nothingLeft(t)
}
