//go:build linux && cgo

package seccomp

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func BenchmarkCompile(b *testing.B) {
	for _, s := range []Spec{{}, {Profile: "strict"}, {Report: true}} {
		b.Run(stockName(s), func(b *testing.B) {
			for b.Loop() {
				if _, err := compile(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStock(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(Spec{Report: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	rows := newTable(Spec{})
	c, _ := NativeCall("socket", unix.AF_ALG)
	for b.Loop() {
		rows.decide(c)
	}
}

// BenchmarkCall is the price of one call in the probe, with and without a filter.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		args []uint64
		in   string
	}{
		{"getppid", nil, "bare default strict default-report"},
		{"ioctl", []uint64{^uint64(0), unix.TCGETS}, "bare default default-report"},
		{"socket", []uint64{unix.AF_INET, 99}, "bare default"},
		{"prctl", []uint64{unix.PR_GET_NO_NEW_PRIVS}, "bare default"},
		{"bpf", nil, "default default-report"},
	} {
		for _, in := range strings.Fields(c.in) {
			b.Run(c.name+"/"+in, func(b *testing.B) { callCost(b, in, c.name, c.args...) })
		}
	}
}

func callCost(b *testing.B, in, name string, args ...uint64) {
	profile, report := strings.CutSuffix(in, "-report")
	s := Spec{Profile: profile, Report: report}
	req := probeRequest{Repeat: 2_000_000}
	if report && name == "bpf" {
		req.Repeat = 900 // below the throttle
	}
	if in != "bare" {
		req.Program = program(b, s)
	}
	call, _ := NativeCall(name, args...)
	req.Calls = []Call{call}
	p := runProbe(b, s, req)
	b.ReportMetric(float64(p.Calling.Nanoseconds())/float64(req.Repeat+1), "ns/call")
	b.ReportMetric(float64(p.Installing.Nanoseconds())/1e3, "µs/install")
	b.ReportMetric(0, "ns/op")
}
