package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"skillbox/integration/space"
)

// The bench's network is two namespaces that one veth pair joins: a host, on which skillbox runs, and servers, which have every other
// address; and a third that a plain pair joins to the host, which forwards for it as for a box with a link, but without any rule. No packet
// leaves them.
const (
	hostAddr, serversAddr = "11.22.33.2", "11.22.33.1" // of the two ends
	plainAddr, plainVia   = "11.22.34.1", "11.22.34.0" // of a plain pair beside the boxes' links
	greetPort, iperfPort  = 7000, 5201
)

// host, servers and plain are threads that live in these namespaces, until the bench ends.
type spaces struct {
	host, servers, plain *space.Space
	iperf                *exec.Cmd
	open                 []io.Closer
}

// newSpaces makes the network and starts its servers.
func newSpaces(dir string) (n *spaces, err error) {
	n = &spaces{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("namespaces: %w", err), n.close())
		}
	}()
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+serversAddr+"\n"), 0o644); err != nil {
		return n, err
	}
	if n.servers, err = space.New(0, nil); err != nil {
		return n, err
	}
	if n.host, err = space.New(unix.CLONE_NEWNS, func() error { return bindOver(conf, "/etc/resolv.conf") }); err != nil {
		return n, err
	}
	if n.plain, err = space.New(0, nil); err != nil {
		return n, err
	}
	of := func(s *space.Space) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.NS.Fd()) }
	return n, errors.Join(
		n.host.Run(func() error {
			return ip("link add eth0 type veth peer name eth0 netns "+of(n.servers), "addr add "+hostAddr+"/24 dev eth0", "link set lo up", "link set eth0 up",
				"link add plain type veth peer name eth0 netns "+of(n.plain), "addr add "+plainVia+"/31 dev plain", "link set plain up")
		}),
		n.plain.Run(func() error {
			return ip("addr add "+plainAddr+"/31 dev eth0", "link set lo up", "link set eth0 up", "route add default via "+plainVia)
		}),
		n.servers.Run(func() error {
			return errors.Join(ip("addr add "+serversAddr+"/24 dev eth0", "link set lo up", "link set eth0 up",
				"route add "+plainVia+"/31 via "+hostAddr, "route add local default dev lo"), n.serve())
		}),
		n.host.Run(func() error {
			return errors.Join(ip("route add default via "+serversAddr),
				os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
		}),
		n.answers(net.JoinHostPort(serversAddr, fmt.Sprint(iperfPort))))
}

// bindOver shows this thread's mount namespace one file instead of another.
func bindOver(file, at string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	at, err := filepath.EvalSymlinks(at)
	if err != nil {
		return err
	}
	return unix.Mount(file, at, "", unix.MS_BIND, "")
}

func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// serve starts what answers: names, connections, and iperf3.
func (n *spaces) serve() error {
	names, err := net.ListenPacket("udp4", net.JoinHostPort(serversAddr, "53"))
	if err != nil {
		return err
	}
	greeter, err := net.Listen("tcp4", fmt.Sprintf(":%d", greetPort))
	if err != nil {
		return err
	}
	n.open = append(n.open, names, greeter)
	go serveNames(names)
	go serveGreetings(greeter)
	n.iperf = exec.Command("iperf3", "--server", "--port", fmt.Sprint(iperfPort))
	n.iperf.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.iperf.Start()
}

// answers waits until a server that was just started does so.
func (n *spaces) answers(address string) error {
	return n.host.Run(func() error {
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			c, err := net.Dial("tcp4", address)
			if err == nil {
				return c.Close()
			}
			if time.Since(began) > 5*time.Second {
				return err
			}
		}
	})
}

func (n *spaces) close() error {
	var errs []error
	for _, c := range n.open {
		errs = append(errs, c.Close())
	}
	if n.iperf != nil && n.iperf.Process != nil {
		errs = append(errs, n.iperf.Process.Kill())
		_ = n.iperf.Wait() // killed, as it should be
	}
	for _, s := range []*space.Space{n.host, n.servers, n.plain} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// serveGreetings says one byte to whoever comes, and waits for the end.
func serveGreetings(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if _, err := c.Write([]byte{'!'}); err == nil {
				_, _ = io.Copy(io.Discard, c) // the client may reset it
			}
		}()
	}
}

// serveNames knows the names of nameOf.
func serveNames(c net.PacketConn) {
	buffer := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		if wire, err := nameAnswer(buffer[:n]); err == nil {
			_, _ = c.WriteTo(wire, from) // who is gone asks again or not
		}
	}
}

func nameAnswer(query []byte) ([]byte, error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	header.Response, header.RecursionAvailable = true, true
	m := dnsmessage.Message{Header: header, Questions: []dnsmessage.Question{q}}
	var number int
	switch _, err := fmt.Sscanf(q.Name.String(), nameForm+".", &number); {
	case err != nil:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 300},
			Body:   &dnsmessage.AResource{A: nameAddr(number).As4()},
		}}
	}
	return m.Pack()
}

// Ten thousand names and as many ranges must fit into a policy, which is at most 256 KiB long as skillbox writes it: hence short ones.

// nameForm is how names are made of numbers, in a country that is nobody's (ISO 3166), and nameAddr what they stand for.
const nameForm = "h%04d.zz"

func nameOf(number int) string { return fmt.Sprintf(nameForm, number) }

func nameAddr(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{21, 1, byte(number >> 8), byte(number)})
}

// rangeOf is one of up to 20,480 ranges between which there are gaps, so that the kernel cannot have fewer of them.
func rangeOf(number int) netip.Prefix {
	block := number >> 8
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(2 + block/10), byte(block % 10), byte(number), 0}), 25)
}
