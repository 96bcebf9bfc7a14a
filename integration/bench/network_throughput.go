package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"skillbox/integration/space"
)

// throughput compares what iperf3 gets through from a box with what it gets without one, in turns: with the machine's congestion control,
// and where that is BBR, which paces by time and makes the plain pair itself slow, with Reno too.
func (b *networkBench) throughput() error {
	own, err := b.congestion("")
	if err != nil {
		return err
	}
	controls := []string{own}
	if strings.HasPrefix(own, "bbr") {
		controls = append(controls, "reno")
	}
	for _, control := range controls {
		if err := b.throughputWith(control); err != nil {
			return err
		}
	}
	_, err = b.congestion(own)
	return err
}

// congestion sets the congestion control of the namespaces, unless it is "", and returns the one that holds. A box's namespace has the
// machine's, so iperf3 sets its own.
func (b *networkBench) congestion(set string) (got string, err error) {
	const file = "/proc/sys/net/ipv4/tcp_congestion_control"
	for _, s := range []*space.Space{b.host, b.servers, b.plain} {
		err = errors.Join(err, s.Run(func() error {
			if set != "" {
				if err := os.WriteFile(file, []byte(set), 0o644); err != nil {
					return err
				}
			}
			text, err := os.ReadFile(file)
			got = strings.TrimSpace(string(text))
			return err
		}))
	}
	return got, err
}

// stretch is one way to the server. Each is measured against the first, the plain pair without a box, and a link also against a plain pair
// in its place, which has the same hop.
type stretch struct {
	name  string
	in    *space.Space // without a box
	of    *way
	share float64      // what it must get of the first, in percent; 0 is nothing
	hop   *stretch     // with the same hop; nil is without
	gbits [2][]float64 // to the server and back
}

func (b *networkBench) stretches() []*stretch {
	plain := &stretch{name: "no box, behind a plain veth pair that the host forwards for", in: b.plain}
	all := []*stretch{{name: "no box", in: b.host}, plain}
	for _, w := range b.ways {
		s := &stretch{name: w.name, of: &w, share: 60}
		if w.path == "veth" {
			s.share, s.hop = 90, plain
		}
		all = append(all, s)
	}
	return all
}

// throughputWith measures with a congestion control.
func (b *networkBench) throughputWith(control string) error {
	if _, err := b.congestion(control); err != nil {
		return err
	}
	const seconds = 1
	times := max(*runs/5, 3)
	all := b.stretches()
	for round := range times {
		err := rotated(round, len(all), func(i int) error {
			for d := range all[i].gbits {
				gbits, err := b.iperf3(all[i], control, seconds, d == 1)
				if err != nil {
					return fmt.Errorf("%s: %w", all[i].name, err)
				}
				all[i].gbits[d] = append(all[i].gbits[d], gbits)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.title("one TCP connection of iperf3, by a cidr rule, for %d s, congestion control %s, medians of %d, in turns; shares are medians of the turns'", seconds, control, times)
	for d, direction := range []string{"to the server", "from the server"} {
		for _, s := range all {
			got := s.gbits[d]
			b.line(median(got), "Gbit/s", "%s: %s (%.1f to %.1f)", s.name, direction, slices.Min(got), slices.Max(got))
			if s == all[0] {
				continue
			}
			share := medianRatio(got, all[0].gbits[d]) * 100
			ratio := fmt.Sprintf("%.0f %% of no box", share)
			if s.hop != nil {
				ratio += fmt.Sprintf(", %.0f %% of the plain pair with the same hop", medianRatio(got, s.hop.gbits[d])*100)
			}
			if s.share == 0 {
				b.lines[len(b.lines)-1].Ratio = ratio
			} else {
				b.bar(ratio, fmt.Sprintf("at least %g %% of no box", s.share), share >= s.share)
			}
		}
	}
	return nil
}

// iperf3 returns what was received, in Gbit/s.
func (b *networkBench) iperf3(s *stretch, control string, seconds int, reverse bool) (float64, error) {
	words := []string{"iperf3", "--client", rangeOf(0).Addr().Next().String(), "--port", fmt.Sprint(iperfPort), "--json", "--time", fmt.Sprint(seconds), "--congestion", control}
	if reverse {
		words = append(words, "--reverse")
	}
	var out []byte
	if s.of == nil {
		c, err := b.command(nil, "", nil, words...)
		if err != nil {
			return 0, err
		}
		err = s.in.Run(func() (err error) {
			out, err = c.Output()
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("iperf3: %w: %s", err, out)
		}
	} else {
		r, err := b.run(*s.of, b.policy(*s.of, fmt.Sprintf("{cidrs: [%s], ports: [%d]}", rangeOf(0), iperfPort)), words...)
		if err != nil {
			return 0, err
		}
		out = []byte(r.Stdout)
	}
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return 0, fmt.Errorf("iperf3: %w: %s", err, out)
	}
	if report.End.Received.Rate == 0 {
		return 0, errors.New("iperf3: nothing was received")
	}
	return report.End.Received.Rate / 1e9, nil
}
