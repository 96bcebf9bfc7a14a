package sink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"skillbox/audit"
)

// Severities of syslog(3), which journald's PRIORITY has too.
const (
	warning = 4
	info    = 6
)

// severity is warning for what was refused, failed or did not end by itself.
func severity(r *audit.Record) int {
	switch r.Verdict() {
	case "", "allowed", "exited":
		return info
	}
	return warning
}

func message(r *audit.Record) string { return string(r.Kind) + ": " + r.Summary() }

// journalEntry is a datagram of journald's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL). A record is far shorter than a datagram may be.
func journalEntry(r *audit.Record) []byte {
	var b bytes.Buffer
	field := func(name, value string) {
		switch {
		case value == "":
		case strings.Contains(value, "\n"):
			b.WriteString(name + "\n")
			b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(value))))
			b.WriteString(value + "\n")
		default:
			b.WriteString(name + "=" + value + "\n")
		}
	}
	field("MESSAGE", message(r))
	field("PRIORITY", strconv.Itoa(severity(r)))
	field("SYSLOG_IDENTIFIER", "skillbox")
	field("SKILLBOX_KIND", string(r.Kind))
	field("SKILLBOX_SEQ", strconv.FormatUint(r.Seq, 10))
	field("SKILLBOX_RUN", r.Run)
	field("SKILLBOX_VERDICT", r.Verdict())
	if r.Skill != nil {
		field("SKILLBOX_SKILL", r.Skill.Name)
	}
	if r.Caller != nil {
		field("SKILLBOX_CALLER_UID", strconv.Itoa(r.Caller.UID))
	}
	field("SKILLBOX_RECORD", string(r.Line))
	return b.Bytes()
}

// logAudit is the facility of RFC 5424, table 1.
const logAudit = 13

// syslogMessage is a message of RFC 5424. Its text is the record as it stands in the log; the enterprise number is the one of RFC 5612, for lack of
// one of our own.
func syslogMessage(r *audit.Record) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<%d>1 %s %s skillbox %d %s [skillbox@32473 seq=\"%d\"", logAudit*8+severity(r),
		r.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), printable(r.Host, 255), os.Getpid(), printable(string(r.Kind), 32), r.Seq)
	if r.Run != "" {
		fmt.Fprintf(&b, " run=\"%s\"", paramValue.Replace(r.Run))
	}
	b.WriteString("] ")
	if !ascii(r.Line) {
		b.WriteString("\ufeff") // section 6.4: what is UTF-8 begins with it
	}
	b.Write(r.Line)
	return b.Bytes()
}

// paramValue escapes as section 6.3.3 says.
var paramValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`)

// printable is a text as a header takes it: visible ASCII, or - for nothing.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text[:min(len(text), most)]
}

func ascii(line []byte) bool {
	for _, c := range line {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
