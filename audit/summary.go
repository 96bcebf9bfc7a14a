package audit

import (
	"fmt"
	"strings"
)

// Summary is an event in a few words, for a person. Every text in it is clean already.
func (e *Event) Summary() string {
	text := e.about()
	o := e.Outcome()
	if o == nil {
		return text
	}
	if o.Verdict != "" && e.Kind != RunRefused {
		text = o.Verdict + " " + text
	}
	if o.Error != "" {
		text += ": " + o.Error
	}
	if o.Subject != "" {
		text += " (" + o.Subject + ")"
	}
	if o.Count > 1 {
		text += fmt.Sprintf(", %d times", o.Count)
	}
	if o.Layer != "" || o.Rule != "" {
		text += "; by " + strings.TrimSpace(o.Layer+" "+o.Rule)
	}
	if o.Remedy != "" {
		text += "; to allow it: " + o.Remedy
	}
	return text
}

// What is what happened or was tried, in a few words, without what became of it.
func (e *Event) What() string {
	if o := e.Outcome(); o != nil && o.Subject != "" && e.Kind != RunRefused {
		return o.Subject
	}
	return e.about()
}

func (e *Event) about() string {
	switch d := e.Detail.(type) {
	case Granted:
		return fmt.Sprintf("%s under %s, %s", e.skillName(), orNone(d.Policy, "the default policy"), d.Mode)
	case Refused:
		return d.Message
	case Started:
		return strings.Join(d.Command, " ") + " in a " + d.Box + " box"
	case Layer:
		return d.Layer + ": " + d.State
	case Exec:
		return mark(d.Claimed, d.Path+" "+strings.Join(d.Argv, " "))
	case File:
		return mark(d.Claimed, strings.TrimSuffix(d.Op+" "+d.Path+" to "+d.To, " to "))
	case Syscall:
		return mark(d.Claimed, d.Name+"("+strings.Join(d.Args, ", ")+")")
	case DNS:
		return strings.TrimSpace(d.Name + " " + d.Type + " " + strings.Join(d.Addresses, " "))
	case Connection:
		to := strings.TrimSpace(d.Name + " " + d.Address)
		text := fmt.Sprintf("%s %s %s", d.Op, d.Proto, to)
		if d.Port != 0 {
			text += fmt.Sprintf(" port %d", d.Port)
		}
		if d.PID == 0 { // the network's word, at the connection's end
			text += fmt.Sprintf(", %d bytes out, %d in", d.BytesOut, d.BytesIn)
		}
		return mark(d.Claimed, text)
	case Env:
		return "variable " + d.Name
	case Limit:
		return fmt.Sprintf("%s of %d", d.Limit, d.Value)
	case Output:
		return fmt.Sprintf("%s, %d bytes", d.Name, d.Bytes)
	case Ended:
		return d.about()
	case Opened:
		return fmt.Sprintf("segment %d of log %s", d.Segment, d.Log)
	case Checkpoint:
		return fmt.Sprintf("%d lines, root %.16s…", d.Lines, d.Root)
	case Torn:
		return fmt.Sprintf("%d bytes of an unfinished line were removed", d.Bytes)
	case Undelivered:
		return fmt.Sprintf("%s did not get %d records: %s", d.Sink, d.Records, d.Why)
	}
	return ""
}

func (d Ended) about() string {
	text := fmt.Sprintf("%s, exit code %d, after %.1f ms", d.Verdict, d.ExitCode, d.DurationMS)
	if d.Error != "" {
		text += ": " + d.Error
	}
	var denials int64
	for _, n := range d.Denials {
		denials += n
	}
	if denials > 0 {
		text += fmt.Sprintf("; %d denials", denials)
	}
	if d.Dropped > 0 {
		text += fmt.Sprintf("; %d details were not recorded: the disk was full", d.Dropped)
	}
	return text
}

func (e *Event) skillName() string {
	if e.Skill == nil {
		return "a skill"
	}
	return e.Skill.Name
}

func orNone(text, none string) string {
	if text == "" {
		return none
	}
	return text
}

// mark says what the skill may have changed after we read it.
func mark(claimed []string, text string) string {
	if text = strings.TrimSpace(text); len(claimed) == 0 {
		return text
	}
	return text + " [as the skill claims: " + strings.Join(claimed, ", ") + "]"
}
