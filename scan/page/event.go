package page

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"skillbox/audit"
)

// row is one event in the timeline.
type row struct {
	ID      string
	At      string // since the run's first record
	PID     int    // 0 where the record has none
	Depth   int    // of its process below the skill's first
	Kind    string
	What    text
	Note    string
	Verdict string // "" where nothing was tried
	Error   string
	Times   string
	Sent    text // what a sinkhole took first
	decision

	time  time.Time
	order int64 // among all records of the page
}

// decision says who refused something, and what would allow it.
type decision struct {
	Layer, Rule string
	Remedy      text   // to be copied into a policy
	Never       string // why no policy can allow it
}

// The log writes a remedy that there is not as "none: why".
const noRemedy = "none: "

func decisionOf(o *audit.Outcome) decision {
	if o == nil {
		return decision{}
	}
	d := decision{Layer: short(o.Layer, 64), Rule: short(o.Rule, 600)}
	if why, ok := strings.CutPrefix(o.Remedy, noRemedy); ok {
		d.Never = short(why, 600)
	} else {
		d.Remedy = textOf(o.Remedy)
	}
	return d
}

func (d *decision) cost() int {
	return escaped(d.Layer) + escaped(d.Rule) + d.Remedy.cost() + escaped(d.Never)
}

// rowOverhead is about what one row has around its texts.
const rowOverhead = 420

func (r *row) cost() int {
	return rowOverhead + r.What.cost() + r.Sent.cost() + escaped(r.Note) + escaped(r.Error) + r.decision.cost()
}

// rowOf leaves ID, At and Depth to whoever knows the run.
func rowOf(e *audit.Event) row {
	what, note := describe(e)
	r := row{Kind: string(e.Kind), PID: processOf(e), What: textOf(what)}
	notes := []string{note}
	if o := e.Outcome(); o != nil {
		r.Verdict, r.Error, r.decision = o.Verdict, short(o.Error, 128), decisionOf(o)
		if o.Count > 1 {
			r.Times = number(o.Count) + " times"
		}
		if !strings.Contains(what, o.Subject) {
			notes = append([]string{o.Subject}, notes...)
		}
	}
	if c, ok := e.Detail.(audit.Connection); ok {
		r.Sent = textOf(c.FirstBytes)
	}
	if claimed := claimedOf(e); len(claimed) > 0 {
		notes = append(notes, "as the skill claims: "+strings.Join(claimed, ", "))
	}
	r.Note = short(strings.Join(nonEmpty(notes), " · "), 600)
	return r
}

// describe tells an event in a word that matters, and what else there is to it.
func describe(e *audit.Event) (what, note string) {
	switch d := e.Detail.(type) {
	case audit.Granted:
		return "granted under " + orElse(d.Policy, "the default policy"), joined("mode "+d.Mode, "helper "+d.Helper)
	case audit.Refused:
		return d.Message, ""
	case audit.Started:
		return strings.Join(d.Command, " "), "in a " + d.Box + " box"
	case audit.Layer:
		return d.Layer + ": " + d.State, ""
	case audit.Exec:
		if len(d.Argv) == 0 || d.Argv[0] == d.Path {
			return orElse(strings.Join(d.Argv, " "), d.Path), ""
		}
		return strings.Join(d.Argv, " "), d.Path
	case audit.File:
		if d.To != "" {
			return d.Op + " " + d.Path + " → " + d.To, strings.Join(d.Flags, " ")
		}
		return d.Op + " " + d.Path, strings.Join(d.Flags, " ")
	case audit.Syscall:
		if len(d.Args) == 0 {
			return d.Name, d.Arch
		}
		return d.Name + "(" + strings.Join(d.Args, ", ") + ")", d.Arch
	case audit.DNS:
		return strings.TrimSpace(d.Name + " " + d.Type), joined(strings.Join(d.Addresses, " "), lasted(d.DurationMS))
	case audit.Connection:
		return connection(&d), joined(traffic(d.BytesOut, d.BytesIn), lasted(d.DurationMS))
	case audit.Limit:
		return d.Limit, limit(&d)
	case audit.Output:
		return d.Name, joined(bytesOf(d.Bytes), "sha256 "+d.SHA256)
	case audit.Ended:
		return ended(&d), d.Error
	}
	return e.What(), ""
}

func connection(d *audit.Connection) string {
	address := d.Address
	if d.Port != 0 {
		address = net.JoinHostPort(orElse(d.Address, d.Name), strconv.Itoa(d.Port))
	}
	words := []string{d.Op, d.Proto, d.Name, address}
	if d.Address == "" && d.Port != 0 {
		words[2] = "" // the name stands with the port
	}
	return strings.Join(nonEmpty(words), " ")
}

// limit gives a value in its unit, which the key's name tells.
func limit(d *audit.Limit) string {
	switch {
	case d.Value == 0:
		return ""
	case strings.Contains(d.Limit, "timeout"):
		return "at " + duration(time.Duration(d.Value)*time.Millisecond)
	case strings.HasSuffix(d.Limit, "processes"), strings.HasSuffix(d.Limit, "pids"):
		return "at " + number(d.Value)
	default:
		return "at " + number(d.Value) + " (" + bytesOf(d.Value) + ")"
	}
}

func ended(d *audit.Ended) string {
	text := fmt.Sprintf("%s, exit code %d", d.Verdict, d.ExitCode)
	if d.Signal != "" {
		text += ", " + d.Signal
	}
	return text + ", after " + milliseconds(d.DurationMS)
}

func traffic(out, in int64) string {
	if out == 0 && in == 0 {
		return ""
	}
	return bytesOf(out) + " sent, " + bytesOf(in) + " received"
}

func lasted(ms float64) string {
	if ms == 0 {
		return ""
	}
	return milliseconds(ms)
}

func processOf(e *audit.Event) int {
	switch d := e.Detail.(type) {
	case audit.Exec:
		return d.PID
	case audit.File:
		return d.PID
	case audit.Syscall:
		return d.PID
	case audit.Connection:
		return d.PID
	}
	return 0
}

func claimedOf(e *audit.Event) []string {
	switch d := e.Detail.(type) {
	case audit.Exec:
		return d.Claimed
	case audit.File:
		return d.Claimed
	case audit.Syscall:
		return d.Claimed
	case audit.Connection:
		return d.Claimed
	}
	return nil
}

func joined(words ...string) string { return strings.Join(nonEmpty(words), " · ") }

func nonEmpty(words []string) (kept []string) {
	for _, w := range words {
		if w != "" {
			kept = append(kept, w)
		}
	}
	return kept
}
