package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var _ = register(map[string]func([]string) (any, error){"dns": questions, "resolve": resolve, "dns-flood": dnsFlood})

// question is a query as its bytes are: labels are not checked, and any server may be asked.
type question struct {
	Via    string   `json:"via"` // "udp 127.0.0.1:53" where it is left out
	Labels []string `json:"labels"`
	Type   uint16   `json:"type"` // 0 is A
	Raw    []byte   `json:"raw"`  // the whole message instead
}

// reply is what came back.
type reply struct {
	Error   string   `json:"error"` // of the socket
	Code    string   `json:"code"`  // "NXDomain"
	Answers []string `json:"answers"`
	Cut     bool     `json:"cut"`
	TTL     uint32   `json:"ttl"` // of the last answer, in seconds
	MS      float64  `json:"ms"`
}

func questions([]string) (any, error) {
	var all []question
	if err := json.NewDecoder(os.Stdin).Decode(&all); err != nil {
		return nil, err
	}
	replies := make([]reply, len(all))
	for i, q := range all {
		replies[i] = q.ask(2 * time.Second)
	}
	return replies, nil
}

func (q *question) ask(patience time.Duration) (r reply) {
	if q.Via == "" {
		q.Via = "udp 127.0.0.1:53"
	}
	began := time.Now()
	wire, err := q.exchange(patience)
	r.MS = since(began)
	if err != nil {
		r.Error = outcomeOf(err)
		return r
	}
	var p dnsmessage.Parser
	h, err := p.Start(wire)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Code, r.Cut = strings.TrimPrefix(h.RCode.String(), "RCode"), h.Truncated
	if binary.BigEndian.Uint16(wire[6:]) == 0 {
		return r // the question may be one that dnsmessage does not read
	}
	var m dnsmessage.Message
	if err := m.Unpack(wire); err != nil {
		r.Error = err.Error()
		return r
	}
	for _, a := range m.Answers {
		r.TTL = a.Header.TTL
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			r.Answers = append(r.Answers, net.IP(b.A[:]).String())
		case *dnsmessage.AAAAResource:
			r.Answers = append(r.Answers, net.IP(b.AAAA[:]).String())
		default:
			r.Answers = append(r.Answers, strings.TrimPrefix(a.Header.Type.String(), "Type"))
		}
	}
	return r
}

// exchange sends the message and reads one.
func (q *question) exchange(patience time.Duration) ([]byte, error) {
	network, addr, _ := strings.Cut(q.Via, " ")
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	wire := q.Raw
	if wire == nil {
		wire = q.message()
	}
	if network != "tcp" {
		if _, err := c.Write(wire); err != nil {
			return nil, err
		}
		buffer := make([]byte, 4096)
		n, err := c.Read(buffer)
		return buffer[:n], err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)); err != nil {
		return nil, err
	}
	length := make([]byte, 2)
	if _, err := io.ReadFull(c, length); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length))
	_, err = io.ReadFull(c, answer)
	return answer, err
}

// message is a query with recursion desired. A label's length is what its byte can hold.
func (q *question) message() []byte {
	wire := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, l := range q.Labels {
		wire = append(append(wire, byte(len(l))), l...)
	}
	kind := q.Type
	if kind == 0 {
		kind = 1
	}
	return append(binary.BigEndian.AppendUint16(append(wire, 0), kind), 0, 1)
}

// resolve asks Go's resolver for each name.
func resolve(names []string) (any, error) {
	type found struct {
		Addrs string  `json:"addrs"`
		MS    float64 `json:"ms"`
	}
	all := map[string]found{}
	for _, name := range names {
		var f found
		f.Addrs, f.MS = look(name)
		all[name] = f
	}
	return all, nil
}

// dnsFlood asks for a number of different names, PREFIX0.SUFFIX and on, as fast as it can, and counts the answers by their code.
func dnsFlood(args []string) (any, error) {
	if len(args) != 3 {
		return nil, errors.New("dns-flood PREFIX SUFFIX NUMBER")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, err
	}
	codes := map[string]int{}
	for i := range n {
		q := question{Labels: strings.Split(fmt.Sprintf("%s%d.%s", args[0], i, args[1]), ".")}
		r := q.ask(time.Second)
		if r.Error != "" {
			r.Code = r.Error
		}
		codes[r.Code]++
	}
	return codes, nil
}
