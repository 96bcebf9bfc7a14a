package hello

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// MaxHead is how long a request's head may be, and the trailers of a body.
const MaxHead = 64 << 10

var errNotHTTP = errors.New("the client does not speak HTTP/1.0 or HTTP/1.1")

// head is the head of one request, as it came and as it is understood.
type head struct {
	raw       []byte
	name      string
	length    int64 // of the body that follows; 0 when it is chunked
	chunked   bool
	websocket bool // the client asks for WebSocket (RFC 6455)
}

// readHead reads a head and checks it. net/http judges its syntax; what net/http forgives is refused before. The error is io.EOF when
// nothing came.
func readHead(r *bufio.Reader, port uint16, normalize func(string) (string, error)) (*head, error) {
	raw, err := readLines(r)
	if err != nil {
		return nil, err
	}
	f := fieldsOf(raw)
	if err := f.ambiguous(); err != nil {
		return nil, err
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		// Its error may quote a field, and no payload is logged.
		return nil, errors.New("the client's HTTP request is not well formed")
	}
	name, err := f.authority(req, port, normalize)
	if err != nil {
		return nil, err
	}
	h := &head{raw: raw, name: name, chunked: f.encodings > 0, length: max(req.ContentLength, 0)}
	upgrade := req.Header["Upgrade"]
	h.websocket = req.Method == http.MethodGet && !h.chunked && h.length == 0 && len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket")
	return h, nil
}

// readLines reads up to and with an empty line. Each line is checked as it comes, so that little of what is not HTTP is waited
// for.
func readLines(r *bufio.Reader) (raw []byte, err error) {
	if first, _ := r.Peek(1); len(first) > 0 && !isToken(string(first)) {
		return nil, errNotHTTP // binary, which may never send the end of a line
	}
	for {
		start := len(raw)
		if raw, err = appendLine(r, raw, MaxHead); err != nil {
			return nil, err
		}
		line := string(raw[start : len(raw)-2])
		switch {
		case start == 0:
			err = checkRequestLine(line)
		case line == "":
			return raw, nil
		default:
			_, _, err = field(line)
		}
		if err != nil {
			return nil, err
		}
	}
}

// appendLine reads a line of text that ends in CRLF and appends it. A bare CR or LF is refused, since parsers differ on whether it
// ends a line (RFC 9112 section 2.2).
func appendLine(r *bufio.Reader, raw []byte, limit int) ([]byte, error) {
	start := len(raw)
	for {
		part, err := r.ReadSlice('\n')
		raw = append(raw, part...)
		if len(raw) > limit {
			return nil, fmt.Errorf("the client sent more than %d bytes where a line of HTTP should end", limit)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				if len(raw) == 0 {
					return nil, io.EOF
				}
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("the client sent no whole HTTP request: %w", err)
		}
	}
	line, ok := bytes.CutSuffix(raw[start:], []byte("\r\n"))
	if !ok {
		return nil, errors.New("the client sent a line of HTTP that does not end in CRLF")
	}
	for _, b := range line {
		if isControl(rune(b)) {
			return nil, fmt.Errorf("the client sent a line of HTTP with the control byte %#02x", b)
		}
	}
	return raw, nil
}

func checkRequestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch {
	case line == "PRI * HTTP/2.0": // RFC 9113 section 3.4
		return errors.New("the client speaks HTTP/2 without TLS (h2c), whose requests are not checked")
	case method == http.MethodConnect:
		return errors.New("the client asks for a tunnel (CONNECT)")
	case version != "HTTP/1.1" && version != "HTTP/1.0" || !isToken(method) || target == "":
		return errNotHTTP
	case strings.Contains(target, "#"):
		return errors.New("the client's HTTP request has a fragment in its target")
	}
	return nil
}

// field splits a line of a head or trailer. A line that continues the one before (obs-fold, RFC 9112 section 5.2) and a blank before
// the colon (section 5.1) hide a field from some parsers.
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return "", "", errors.New("the client sent an HTTP field that is folded over two lines")
	case !ok || !isToken(name):
		return "", "", errors.New("the client sent an HTTP field without a proper name")
	}
	return strings.ToLower(name), strings.Trim(value, " \t"), nil
}

// isToken checks for a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// fields are those that decide about the name and the length, which net/http drops or merges.
type fields struct {
	hosts              []string
	target, version    string
	lengths, encodings int
}

// fieldsOf takes lines that were checked.
func fieldsOf(raw []byte) (f fields) {
	lines := strings.Split(strings.TrimSuffix(string(raw), "\r\n\r\n"), "\r\n")
	_, rest, _ := strings.Cut(lines[0], " ")
	f.target, f.version, _ = strings.Cut(rest, " ")
	for _, line := range lines[1:] {
		switch name, value, _ := field(line); name {
		case "host":
			f.hosts = append(f.hosts, value)
		case "content-length":
			f.lengths++
		case "transfer-encoding":
			f.encodings++
		}
	}
	return f
}

// ambiguous refuses what makes two parsers disagree on whom a request is for (RFC 9112 section 3.2) or where it ends (sections 6.1, 6.3
// and 11.2).
func (f *fields) ambiguous() error {
	switch {
	case len(f.hosts) == 0 || len(f.hosts) == 1 && f.hosts[0] == "":
		return fmt.Errorf("%w (Host)", ErrNoName)
	case len(f.hosts) > 1:
		return errors.New("the client's HTTP request has several Host")
	case f.lengths > 0 && f.encodings > 0:
		return errors.New("the client's HTTP request has both Content-Length and Transfer-Encoding")
	case f.lengths > 1:
		return errors.New("the client's HTTP request has several Content-Length")
	case f.encodings > 0 && f.version == "HTTP/1.0":
		return errors.New("the client's HTTP/1.0 request has Transfer-Encoding")
	}
	return nil
}

// authority returns the one name that a request is for.
func (f *fields) authority(req *http.Request, port uint16, normalize func(string) (string, error)) (string, error) {
	name, err := hostOf(f.hosts[0], port, normalize)
	if err != nil {
		return "", err
	}
	if f.target[0] == '/' || f.target == "*" && req.Method == http.MethodOptions {
		return name, nil
	}
	target, err := absolute(f.target, req.URL)
	if err != nil {
		return "", err
	}
	if target, err = hostOf(target, port, normalize); err != nil {
		return "", err
	}
	if target != name { // RFC 9112 section 3.2.2: servers must go by the target, and some go by Host
		return "", fmt.Errorf("the client's HTTP request names %s in its target and %s in its Host", target, name)
	}
	return name, nil
}

// absolute returns the authority of an absolute-form target. The URL that net/http made of it must agree.
func absolute(target string, u *url.URL) (string, error) {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") {
		return "", errors.New("the client's HTTP request has a target that is neither a path nor an http address")
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	if rest != u.Host && !strings.Contains(rest, "@") {
		return "", fmt.Errorf("the client's HTTP request has a target whose host is not clear: %.80q", rest)
	}
	return rest, nil
}

// hostOf returns the name of "name" or "name:port", where the port is the one that was dialled.
func hostOf(authority string, port uint16, normalize func(string) (string, error)) (string, error) {
	if strings.Contains(authority, "@") {
		return "", errors.New("the client's HTTP request has a user name before its host") // and a password: not to be quoted
	}
	name, ok := strings.CutSuffix(authority, ":"+strconv.Itoa(int(port)))
	if !ok && strings.Count(authority, ":") == 1 { // with more it is an IPv6 address, and no name either
		return "", fmt.Errorf("the client asks for %.80q on a connection to port %d", authority, port)
	}
	return nameOf(name, normalize)
}
