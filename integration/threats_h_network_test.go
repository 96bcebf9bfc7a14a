//go:build linux

package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a box does with many flows at once is its own affair: the host's connections go on and new ones come about.
func TestThreat159ConntrackExhaustion(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		n := load(5000)
		counts := map[string]int{}
		r := w.probe(t, y, y.policy(usual), &counts, nil, "flows", fmt.Sprint(n), join(servicesAddr, 5000), "20.1.*.*:5000")
		for a := range counts {
			if a != "EPERM" {
				t.Errorf("a datagram: %s, %d times", a, counts[a])
			}
		}
		if len(r.Denials) > 1000 {
			t.Errorf("%d denials are listed", len(r.Denials))
		}
		w.only(t)
		talks := make([]talk, load(400))
		for i := range talks {
			talks[i] = talk{Look: []string{"services.example"}, To: "tcp " + join(servicesAddr, 9999), Send: once("a line\n"), Hold: 3000}
		}
		end := w.beginProbe(t, y, y.policy("egress:\n  - {domains: [services.example], ports: [9999]}\nlimits: {connections: 100, rate: 1000}"), talks, "talk", "together")
		w.hostIsReached(t, y)
		var got []outcome
		r = end(&got)
		reachedBy := 0
		for _, o := range got {
			if o.verdict() == reached {
				reachedBy++
			}
		}
		if reachedBy == 0 || reachedBy > 100 {
			t.Errorf("%d of %d connections came about, 100 are allowed", reachedBy, len(talks))
		}
		if len(talks) > 100 {
			denied(t, r, "connection", join(servicesAddr, 9999)+"/tcp", "network.limits.")
		}
		w.hostIsReached(t, y)
		if y.path == "veth" {
			w.flowsAreBounded(t, y)
		}
	})
}

// flowsAreBounded sends to many allowed addresses over a link.
func (w *world) flowsAreBounded(t *testing.T, y way) {
	t.Helper()
	const most = 1024
	counts := map[string]int{}
	policy := y.policy("egress:\n  - {cidrs: [20.1.0.0/16], ports: [5000/udp]}\nlimits: {bytes: 1Gi, connections: 1000000, rate: 1000000}")
	r := w.probe(t, y, policy, &counts, nil, "flows", fmt.Sprint(2*most), join(servicesAddr, 5000), "20.1.*.*:5000")
	// The kernel counts with some delay, and forgets an unanswered flow after 30 s (nf_conntrack_udp_timeout).
	if times := 1 + int(r.DurationMS/30_000); counts["ok"] == 0 || counts["ok"] > times*(most+64) || counts["EPERM"] == 0 {
		t.Errorf("of %d flows: %v", 2*most, counts)
	}
	said := false
	for _, d := range r.Denials {
		said = said || d.Rule == "flows open at a time"
	}
	if !said {
		t.Errorf("the limit is not told: %+.300v", r.Denials)
	}
	w.hostIsReached(t, y)
}

// The table of neighbours is one for all namespaces of a machine. A sweep leaves nothing in it.
func TestThreat160NeighbourTable(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		counts := map[string]int{}
		// The addresses around those that a box may have, and around the host's.
		w.probe(t, y, y.policy(usual), &counts, nil, "flows", fmt.Sprint(load(2048)), "192.0.*.*:9", "11.22.*.*:9", "10.0.*.*:9", "[2a11:22:33::*:*]:9", "[fe80::*:*%lo]:9", "[2001:db8::*:*]:9")
		for a, n := range counts {
			if a == "ok" && n > 8 { // a box's own addresses and their broadcast
				t.Errorf("%d datagrams were sent: %v", n, counts)
			}
		}
		t.Logf("%v", counts)
		w.only(t)
		w.hostIsReached(t, y)
	})
}

// The kernel gives each user's pipes so much memory (fs.pipe-user-pages-soft), and pipes of a page or two after that. Connections that a box
// holds open do not use that of the user who runs it up.
func TestConnectionsLeaveTheUserItsPipes(t *testing.T) {
	const ask = "import fcntl, os; print(min(fcntl.fcntl(os.pipe()[0], 1032) for i in range(4)))" // F_GETPIPE_SZ
	inEachWay(t, func(t *testing.T, w *world, y way) {
		talks := make([]talk, 250) // a policy that says nothing allows 256
		for i := range talks {
			talks[i] = talk{Look: []string{"services.example"}, To: "tcp " + join(servicesAddr, 9999), Send: once("a line\n"), Hold: int(patience(3*time.Second) / time.Millisecond)}
		}
		end := w.beginProbe(t, y, y.policy("egress:\n  - {domains: [services.example], ports: [9999]}\nlimits: {rate: 1000}", "resources: {open_files: 1024}"), talks, "talk", "together")
		for began := time.Now(); len(w.visits(nil)) < len(talks) && time.Since(began) < patience(3*time.Second); {
			time.Sleep(50 * time.Millisecond)
		}
		c := exec.Command("/usr/bin/python3", "-c", ask)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: y.mode.credential()}
		out, err := c.Output()
		if size := strings.TrimSpace(string(out)); err != nil || size != "65536" {
			t.Errorf("a pipe of the user's holds %s bytes, %v", size, err)
		}
		var got []outcome
		end(&got)
		for i, o := range got {
			if o.verdict() != reached {
				t.Errorf("connection %d: %v", i, o)
			}
		}
	})
}

// hostIsReached demands that programs on the host reach the internet, and each other.
func (w *world) hostIsReached(t *testing.T, y way) {
	t.Helper()
	got := map[string]outcome{}
	w.beside(t, y.mode, &got, nil, "reach", "tcp "+join(servicesAddr, 9999), "tcp "+join("2a10:1::60", 9999), "udp "+join(servicesAddr, 5000), "tcp "+join("127.0.0.1", loopbackPort))
	for to, o := range got {
		if o.Connect != "ok" || strings.HasPrefix(to, "udp") && o.Bytes == 0 {
			t.Errorf("on the host: %s: %v", to, o)
		}
	}
}
