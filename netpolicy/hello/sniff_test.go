package hello

import (
	"strings"
	"testing"
)

func TestSniff(t *testing.T) {
	for _, c := range []struct {
		first string
		want  Kind
	}{
		{"", Undecided},
		{"\x16", Undecided},
		{"\x16\x03\x01\x02\x00", KindTLS},
		{"\x15\x03\x01\x00\x02\x01\x5a", KindTLS}, // a warning, which may come before a hello
		{"\x80\x2e\x01\x03\x01", KindTLS},
		{"\x80\x2e", Undecided},
		{"\x16\x04", KindTLS}, // a version that no server should take, and crypto/tls does
		{"\x16\x10", Other},
		{"G", Undecided},
		{"GET ", Undecided},
		{"GET /", KindHTTP},
		{"\r\n\r\nGET /", KindHTTP},
		{"get\t /", KindHTTP},
		{"x-y.z /", KindHTTP},
		{"OPTIONS * HTTP/1.1\r\n", KindHTTP},
		{"GET http://evil.example/", KindHTTP},
		{"CONNECT evil.example:443 HTTP/1.1\r\n", KindHTTP},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", KindHTTP},
		{"G{T x HTTP/1.1\r\n", KindHTTP},
		{"G{T x H", Undecided},
		{"SSH-2.0-OpenSSH_9.6\r\n", Other},
		{"SSH-2.0-OpenSSH_9.6 Ubuntu\r\n", Other},
		{"EHLO client.example\r\n", Other},
		{"PING\r\n", Other},
		{"*1\r\n$4\r\nPING\r\n", Other},
		{"<?xml version='1.0'?>", Other},
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", Other}, // Postgres asks for TLS
		{"AMQP\x00\x00\x09\x01", Other},
		{strings.Repeat("a", maxSniff), KindHTTP},
		{strings.Repeat("\r\n", maxSniff), KindHTTP},
	} {
		if got := Sniff([]byte(c.first)); got != c.want {
			t.Errorf("%.40q: %d, want %d", c.first, got, c.want)
		}
	}
}
