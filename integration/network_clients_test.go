//go:build linux

package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/helper"
)

// trusting is the policy's part that lets every client trust the world's authority, whose certificate is in the bundle.
const trusting = "env: {set: {SSL_CERT_FILE: /skill/ca.pem, CURL_CA_BUNDLE: /skill/ca.pem, NODE_EXTRA_CA_CERTS: /skill/ca.pem, GIT_SSL_CAINFO: /skill/ca.pem}}\n" +
	"resources: {memory: 2Gi, pids: 256}\nenforcement: best-effort"

// client is a program that fetches a URL in the way of its ecosystem, and says nothing of a proxy.
type client struct {
	name  string
	needs string // a program of the host, "" for none
	words func(url string) []string
}

var clients = []client{
	{"curl", "curl", func(url string) []string { return []string{"curl", "-sS", "--max-time", "10", url} }},
	{"python urllib", "/usr/bin/python3", func(url string) []string {
		return []string{"/usr/bin/python3", "-c", "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())", url}
	}},
	{"python socket", "/usr/bin/python3", func(url string) []string {
		return []string{"/usr/bin/python3", "-c", `
import socket, ssl, sys, urllib.parse
u = urllib.parse.urlsplit(sys.argv[1])
s = socket.create_connection((u.hostname, u.port or 443), timeout=10)
s = ssl.create_default_context().wrap_socket(s, server_hostname=u.hostname)
s.sendall(b"GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (u.path.encode(), u.hostname.encode()))
while data := s.recv(4096): sys.stdout.write(data.decode())
`, url}
	}},
	{"node fetch", "node", func(url string) []string {
		return []string{"node", "-e", "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t), e => { console.error(e); process.exit(1) })", url}
	}},
	{"go", "", func(url string) []string { return []string{"/skill/probe", "get", url} }},
}

// Every client reaches the allowed name, by HTTPS, and only it.
func TestClientsReachTheAllowedName(t *testing.T) {
	inEveryWay(t, func(t *testing.T, w *world, y way) {
		bundle := y.mode.probeBundle(t)
		y.mode.write(t, filepath.Join(bundle, "ca.pem"), w.ca.pem, 0o644)
		fetch := func(t *testing.T, words ...string) *helper.Result {
			t.Helper()
			return w.run(t, y, call{mode: y.mode, policy: y.policy(usual, trusting), bundle: bundle, words: words})
		}
		for _, c := range clients {
			t.Run(c.name, func(t *testing.T) {
				if c.needs != "" {
					_, err := exec.LookPath(c.needs)
					needs(t, c.needs, err)
				}
				w.forget()
				r := fetch(t, c.words("https://api.allowed.example/hello")...)
				if !r.Success || !strings.Contains(r.Stdout, "page /hello of api.allowed.example") {
					t.Fatalf("%s, %v\nstdout: %s\nstderr: %s\ndenials: %+v", r.Verdict, r.Error, r.Stdout, r.Stderr, r.Denials)
				}
				if len(r.Denials) > 0 || r.Usage.Net == nil || r.Usage.Net.Connections < 1 || r.Usage.Net.Lookups < 1 {
					t.Errorf("denials %+v, usage %+v", r.Denials, r.Usage.Net)
				}
				for _, url := range []string{"https://other.example/", "https://" + otherAddr + "/", "https://evil.cdn.example/", "https://[" + otherAddr6 + "]/", "https://api.allowed.example:8443/"} {
					r := fetch(t, c.words(url)...)
					if strings.Contains(r.Stdout, "page /") || r.Success && c.name != "go" {
						t.Errorf("%s: %s\nstderr: %s", url, r.Stdout, r.Stderr)
					}
					if len(r.Denials) == 0 {
						t.Errorf("%s left no denial", url)
					}
				}
				w.only(t, "tcp "+join(apiAddr, 443), "tcp "+join(apiAddr6, 443))
			})
		}
		t.Run("curl to a name at an address of its choice", func(t *testing.T) {
			_, err := exec.LookPath("curl")
			needs(t, "curl", err)
			// The first request opens the address for its own name.
			r := fetch(t, "/bin/sh", "-c", `curl -sS https://shop.cdn.example/a; curl -sS --resolve evil.cdn.example:443:`+sharedAddr+` https://evil.cdn.example/b; echo "$?"`)
			if !strings.Contains(r.Stdout, "page /a of shop.cdn.example") || strings.Contains(r.Stdout, "page /b") || !strings.HasSuffix(r.Stdout, "35\n") {
				t.Errorf("stdout: %s\nstderr: %s", r.Stdout, r.Stderr)
			}
			denied(t, r, "connection", join(sharedAddr, 443)+"/tcp", "")
		})
		t.Run("git", func(t *testing.T) {
			_, err := exec.LookPath("git")
			needs(t, "git", err)
			w.gitRepository(t)
			r := fetch(t, "/bin/sh", "-c", "cd /tmp && git clone -q https://api.allowed.example/git/repo.git && cat repo/file; git clone -q https://other.example/git/repo.git no; ls")
			if !strings.HasPrefix(r.Stdout, "hello\n") || strings.Contains(r.Stdout, "no\n") {
				t.Errorf("stdout: %s\nstderr: %s\ndenials %+v", r.Stdout, r.Stderr, r.Denials)
			}
			denied(t, r, "dns", "other.example", "")
		})
		t.Run("raw sockets", func(t *testing.T) {
			tries := direct(t, 443, otherAddr, otherAddr6, "8.8.8.8")
			tries = append(tries, try{"the name", talk{Look: []string{"api.allowed.example"}, To: "tcp " + join(apiAddr, 443), Send: spoken(t, "api.allowed.example", 443)}, reached, ""})
			w.judge(t, y, y.policy(usual), tries)
		})
	})
}

// What TLS encrypts is not seen: a request within it may name another server, and reaches the one that its hello names.
func TestAnHTTPNameWithinTLSChangesNothing(t *testing.T) {
	inEachWay(t, func(t *testing.T, w *world, y way) {
		_, err := exec.LookPath("curl")
		needs(t, "curl", err)
		bundle := y.mode.bundleOf(t, map[string]string{"ca.pem": w.ca.pem})
		for _, version := range []string{"--http1.1", "--http2"} {
			w.forget()
			r := w.run(t, y, call{mode: y.mode, policy: y.policy(usual, trusting), bundle: bundle, words: []string{"curl", "-sS", version, "-H", "Host: other.example", "https://shop.cdn.example/x"}})
			if !strings.Contains(r.Stdout, "page /x of other.example") {
				t.Errorf("%s: %s %s", version, r.Stdout, r.Stderr)
			}
			for _, v := range w.visits(nil) {
				if v.to.String() != join(sharedAddr, 443) {
					t.Errorf("%s: %v", version, &v)
				}
			}
			w.only(t, "tcp "+join(sharedAddr, 443))
		}
	})
}
