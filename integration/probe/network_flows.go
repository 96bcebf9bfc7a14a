package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var _ = register(map[string]func([]string) (any, error){"scan": scan, "serve": serve, "outlive": outlive, "flows": flows, "gateways": gateways, "race": race, "await": await})

// scan connects to ports 1 to MOST of an address and to those on which this namespace says that somebody listens, and tells of the
// open ones what they do with a request.
func scan(args []string) (any, error) {
	if len(args) != 2 {
		return nil, errors.New("scan ADDRESS MOST")
	}
	most, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	ports := listening()
	for p := range most {
		ports = append(ports, p+1)
	}
	slices.Sort(ports)
	open := map[string]outcome{}
	for _, port := range slices.Compact(ports) {
		addr := net.JoinHostPort(args[0], strconv.Itoa(port))
		c, err := net.DialTimeout("tcp", addr, 2*time.Second)
		if err == nil {
			c.Close()
			t := talk{To: "tcp " + addr, Send: [][]byte{[]byte("GET / HTTP/1.1\r\nHost: api.allowed.example\r\n\r\n")}, Hold: 500}
			open[addr] = t.have()
		} else if a := outcomeOf(err); a != "ECONNREFUSED" {
			open[addr] = outcome{Connect: a}
		}
	}
	return open, nil
}

// listening are the ports of TCP listeners, see proc_net_tcp(5).
func listening() (ports []int) {
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != "0A" {
				continue
			}
			if p, err := strconv.ParseInt(fields[1][strings.LastIndexByte(fields[1], ':')+1:], 16, 32); err == nil {
				ports = append(ports, int(p))
			}
		}
	}
	return ports
}

// gateways are where this namespace's routes lead, and its own addresses.
func gateways([]string) (any, error) {
	found := []string{}
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
			found = append(found, n.IP.String())
		}
	}
	text, _ := os.ReadFile("/proc/net/route")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if v, err := strconv.ParseUint(fields[min(2, len(fields)-1)], 16, 32); err == nil && v != 0 {
			found = append(found, net.IPv4(byte(v), byte(v>>8), byte(v>>16), byte(v>>24)).String())
		}
	}
	return found, err
}

// serve listens on a port of every address, for TCP and UDP, until DIR/stop appears. It writes its own addresses into DIR/got, and reports
// how many came.
func serve(args []string) (any, error) {
	dir, port := args[0], args[1]
	var came atomic.Int64
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return nil, err
	}
	u, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			c.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := u.ReadFrom(buffer)
			if err != nil {
				return
			}
			came.Add(1)
			_, _ = u.WriteTo(buffer[:n], from)
		}
	}()
	addrs, err := gateways(nil)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(addrs)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "part"), text, 0o644)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "part"), filepath.Join(dir, "got"))
	}
	if err == nil {
		stopped(dir)
	}
	return came.Load(), err
}

// stopped waits for DIR/stop.
func stopped(dir string) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// await looks NAME up, makes DIR/got and waits for DIR/stop.
func await(args []string) (any, error) {
	addrs, _ := look(args[1])
	if err := os.WriteFile(filepath.Join(args[0], "got"), nil, 0o644); err != nil {
		return nil, err
	}
	stopped(args[0])
	return addrs, nil
}

// outlive looks up NAME, connects to PORT of it and has a line echoed. Then it looks up again each second, and tries to connect to the first
// address each time, until that is refused or SECONDS have passed. It reports what the old connection and the new addresses did.
func outlive(args []string) (any, error) {
	if len(args) != 3 {
		return nil, errors.New("outlive NAME PORT SECONDS")
	}
	name, port := args[0], args[1]
	seconds, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	first, _ := look(name)
	got["first"] = first
	old := net.JoinHostPort(first, port)
	c, err := net.DialTimeout("tcp", old, 2*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	echo := func() string {
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		buffer := make([]byte, 5)
		_, err := io.WriteString(c, "line\n")
		if err == nil {
			_, err = io.ReadFull(c, buffer)
		}
		return outcomeOf(err)
	}
	got["echo at first"] = echo()
	for began := time.Now(); time.Since(began) < time.Duration(seconds)*time.Second; time.Sleep(time.Second) {
		if now, _ := look(name); now != first && got["then"] == "" {
			got["then"] = now
			got["reach then"] = (&talk{To: "tcp " + net.JoinHostPort(now, port), Nothing: true}).have().Connect
		}
		got["reach first"] = (&talk{To: "tcp " + old, Nothing: true}).have().Connect
		if got["reach first"] != "ok" {
			got["refused after"] = fmt.Sprintf("%.0f", time.Since(began).Seconds())
			break
		}
	}
	got["echo at last"] = echo()
	return got, nil
}

// flows sends one datagram from each of NUMBER sockets to every TARGET, or as many ports or addresses as "*" in it stands for (0 to 255),
// and counts what the sockets said.
func flows(args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range n {
		for _, to := range args[1:] {
			to = strings.Replace(to, "*", strconv.Itoa(i/256%256), 1)
			to = strings.Replace(to, "*", strconv.Itoa(i%256), 1)
			c, err := net.Dial("udp", to)
			if err == nil {
				_, err = c.Write([]byte("x"))
				c.Close()
			}
			counts[outcomeOf(err)]++
		}
	}
	return counts, nil
}

// race connects to its arguments for 300 ms, from its first instructions on, and counts what came of it.
func race(targets []string) (any, error) {
	counts := map[string]int{}
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		for _, to := range targets {
			t := talk{To: to, Nothing: true}
			if strings.HasPrefix(to, "udp") {
				t = talk{To: to, Send: [][]byte{[]byte("x")}, Hold: 1}
			}
			o := t.have()
			counts[to+" "+o.Connect+" "+o.End]++
		}
	}
	return counts, nil
}
