//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

const openEgress = "egress:\n  - {cidrs: [20.1.1.0/24], ports: [9999]}\nlimits: {bytes: 1Gi, rate: 1000}"

// Many boxes at a time come and go, each with a connection, and nothing of them stays on the host.
func TestManyBoxesWithAWayOut(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		n := load(60) // a thousand are made in package gateway, without programs in them
		if testing.Short() {
			n = min(n, 50)
		}
		policy := y.mode.file(t, "policy.yaml", y.policy(openEgress))
		bundle := y.mode.bundleOf(t, map[string]string{"main.sh": "#!/bin/bash\nexec 3<>/dev/tcp/" + apiAddr + "/9999 && echo a line >&3 && read -r line <&3 && echo \"$line\"\n"})
		var all sync.WaitGroup
		failed := make(chan string, n)
		tokens := make(chan struct{}, 64)
		for range n {
			tokens <- struct{}{}
			all.Add(1)
			c := y.mode.command("exec", "--policy", policy, bundle, "--", "./main.sh")
			var out, errs bytes.Buffer
			c.Stdout, c.Stderr = &out, &errs
			if err := w.host.Run(c.Start); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer all.Done()
				if err := c.Wait(); err != nil || out.String() != "a line\n" {
					failed <- fmt.Sprintf("%v, stdout %q, stderr %q", err, out.String(), errs.String())
				}
				<-tokens
			}()
		}
		all.Wait()
		close(failed)
		for f := range failed {
			t.Errorf("of %d boxes one: %s (and %d more)", n, f, len(failed))
			break
		}
	})
}

// Where skillboxd dies, its box's network does so in the same moment; what it leaves on the host the next one takes away.
func TestAKilledSkillboxdTakesTheNetworkWithIt(t *testing.T) {
	const sending = `
import socket, time
s = socket.create_connection(("` + apiAddr + `", 9999))
print("connected", flush=True)
while True:
    s.send(b"a line\n"); s.recv(100); time.sleep(0.01)
`
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		n := max(3, load(50))
		policy := y.mode.file(t, "policy.yaml", y.policy(openEgress))
		bundle := y.mode.sharedBundle(t)
		var clients []*exec.Cmd
		var killed []int
		said := make([]bytes.Buffer, n) // by each client and its skill
		for i := range n {
			c := y.mode.command("exec", "--policy", policy, bundle, "--", "/usr/bin/python3", "-c", sending)
			c.Stdout, c.Stderr = &said[i], &said[i]
			if err := w.host.Run(c.Start); err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		for _, c := range clients {
			killed = append(killed, startedSkillboxdOf(t, c.Process.Pid))
		}
		for began := time.Now(); len(w.visits(nil)) < n && time.Since(began) < patience(30*time.Second); {
			time.Sleep(20 * time.Millisecond)
		}
		if got := len(w.visits(nil)); got != n {
			t.Errorf("%d of %d boxes are connected", got, n)
		}
		for _, pid := range killed {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		for i, c := range clients {
			_ = c.Wait() // it says that skillboxd has gone
			if t.Failed() {
				t.Logf("box %d: %s", i, said[i].String())
			}
		}
		time.Sleep(patience(100 * time.Millisecond)) // for what was on its way
		sent := w.packets("tcp " + join(apiAddr, 9999))
		time.Sleep(patience(200 * time.Millisecond))
		if more := w.packets("tcp "+join(apiAddr, 9999)) - sent; more > 0 {
			t.Errorf("%d packets more after the end", more)
		}
		if r := w.run(t, y, call{mode: y.mode, policy: y.policy(openEgress), words: []string{"true"}}); r.Verdict != helper.Exited {
			t.Errorf("the next run: %+v", r.Error)
		}
	})
}

// packets are those that left the host for a destination.
func (w *world) packets(to string) (n int) {
	w.quiet()
	w.book.write(func() { n = w.book.packets[to] })
	return n
}
