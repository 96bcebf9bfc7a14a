package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// throughput compares what iperf3 gets through from a box with what it gets between the two namespaces without one, in turns: with
// the machine's congestion control, and where that is BBR, which paces by time and makes the plain pair itself slow, with Reno too.
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

// congestion sets the congestion control of both namespaces, unless it is "", and returns the one that holds. A box's namespace has the
// machine's, so iperf3 sets its own.
func (b *networkBench) congestion(set string) (got string, err error) {
	const file = "/proc/sys/net/ipv4/tcp_congestion_control"
	for _, s := range []*space{b.host, b.servers} {
		err = errors.Join(err, s.run(func() error {
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

func (b *networkBench) throughputWith(control string) error {
	if _, err := b.congestion(control); err != nil {
		return err
	}
	const seconds = 1
	times := max(*runs/7, 3)
	type path struct {
		name  string
		of    *way
		share float64 // what it must get of the first one's
		gbits [2][]float64
	}
	paths := []*path{{name: "no box"}}
	for _, w := range b.ways {
		paths = append(paths, &path{name: w.name, of: &w, share: map[string]float64{"capture": 60, "veth": 90}[w.path]})
	}
	for round := range times {
		err := rotated(round, len(paths), func(i int) error {
			for d := range paths[i].gbits {
				gbits, err := b.iperf3(paths[i].of, control, seconds, d == 1)
				if err != nil {
					return fmt.Errorf("%s: %w", paths[i].name, err)
				}
				paths[i].gbits[d] = append(paths[i].gbits[d], gbits)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.title("one TCP connection of iperf3, by a cidr rule, for %d s, congestion control %s, medians of %d, in turns; shares are medians of the turns'", seconds, control, times)
	for d, direction := range []string{"to the server", "from the server"} {
		for _, p := range paths {
			got, reference := p.gbits[d], paths[0].gbits[d]
			b.line(median(got), "Gbit/s", "%s: %s (%.1f to %.1f)", p.name, direction, slices.Min(got), slices.Max(got))
			if p.of != nil {
				share := medianRatio(got, reference) * 100
				b.bar(fmt.Sprintf("%.0f %% of no box, the best %.0f %% of the best", share, slices.Max(got)/slices.Max(reference)*100),
					fmt.Sprintf("at least %g %%", p.share), share >= p.share)
			}
		}
	}
	return nil
}

// iperf3 returns what was received, in Gbit/s.
func (b *networkBench) iperf3(w *way, control string, seconds int, reverse bool) (float64, error) {
	words := []string{"iperf3", "--client", rangeOf(0).Addr().Next().String(), "--port", fmt.Sprint(iperfPort), "--json", "--time", fmt.Sprint(seconds), "--congestion", control}
	if reverse {
		words = append(words, "--reverse")
	}
	var out []byte
	if w == nil {
		c, err := b.command(nil, "", nil, words...)
		if err != nil {
			return 0, err
		}
		err = b.host.run(func() (err error) {
			out, err = c.Output()
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("iperf3: %w: %s", err, out)
		}
	} else {
		r, err := b.run(*w, b.policy(*w, fmt.Sprintf("{cidrs: [%s], ports: [%d]}", rangeOf(0), iperfPort)), words...)
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
