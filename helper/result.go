package helper

import (
	"encoding/json"
	"fmt"
	"time"
)

// Verdicts of a Result.
const (
	Exited        = "exited"         // by itself, with exit_code
	Signaled      = "signaled"       // by signal
	TimedOut      = "timed_out"      // after policy's timeout
	OutOfMemory   = "out_of_memory"  // above resources.memory
	PidsLimit     = "pids_limit"     // kept forking at resources.pids
	OutputLimit   = "output_limit"   // above resources.output
	SyscallKilled = "syscall_killed" // by the seccomp filter
	Canceled      = "canceled"       // by the caller
	Refused       = "refused"        // by policy or bundle check; nothing ran
	Failed        = "failed"         // skillbox itself
)

// Exit codes of skillbox that are not the skill's own, in the shells' and timeout(1)'s convention.
const (
	CodeTimedOut      = 124
	CodeFailed        = 125 // refused too
	CodeNotExecutable = 126
	CodeNotFound      = 127
	CodeCanceled      = 130
	CodeOutOfMemory   = 137
	CodePidsLimit     = 137 // killed, like CodeOutOfMemory; the verdict tells them apart
	CodeOutputLimit   = 153
	CodeSyscallKilled = 159
)

// Result is the envelope: what one run was, for --json. Stdout, Stderr and, where the skill wrote no result file, Result are
// filled in by the client.
type Result struct {
	ID              string             `json:"id"`
	Session         string             `json:"session,omitempty"` // in whose box it ran
	Call            int                `json:"call,omitempty"`    // its number there, from 1
	Success         bool               `json:"success"`           // exited with 0
	Verdict         string             `json:"verdict"`
	ExitCode        int                `json:"exit_code"` // what the skillbox command exits with
	Signal          string             `json:"signal"`    // "SIGKILL", or ""
	Stdout          string             `json:"stdout"`
	StdoutTruncated bool               `json:"stdout_truncated"`
	Stderr          string             `json:"stderr"`
	StderrTruncated bool               `json:"stderr_truncated"`
	Result          json.RawMessage    `json:"result"`
	DurationMS      float64            `json:"duration_ms"`
	Phases          map[string]float64 `json:"phases"`
	Usage           Usage              `json:"usage"`
	Error           *Error             `json:"error"`
	Denials         []Denial           `json:"denials"`
	Network         []Flow             `json:"network,omitempty"`
	Warnings        []string           `json:"warnings"`
	Outputs         []Output           `json:"outputs"`
	Changes         []Change           `json:"changes,omitempty"` // what the skill changed in its bundle, with rootfs.bundle: copy-on-write
	Unrecorded      uint64             `json:"-"`                 // details of what the skill did that nobody remembered: they were too many
	Skill           Named              `json:"skill"`
	Policy          Named              `json:"policy"`
	Sandbox         Sandbox            `json:"sandbox"`
	Published       []Published        `json:"published,omitempty"`
	Trust           *Trust             `json:"trust,omitempty"` // nil where nothing asks how far the bundle is to be trusted
}

// Published is a port of the box that could be reached from outside.
type Published struct {
	Port    uint16 `json:"port"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address"` // path of a unix socket, or "127.0.0.1:40123"
}

// Trust is how far the bundle was believed, and why.
type Trust struct {
	Tier            string `json:"tier,omitempty"` // "trusted", "reviewed" or "untrusted"; "" where the host tells none apart
	Signature       string `json:"signature"`      // "none", "valid", "unknown-key" or "invalid"
	KeyID           string `json:"key_id,omitempty"`
	TrustRemoteCode bool   `json:"trust_remote_code,omitempty"` // the caller's word lifted the floor of an untrusted bundle
}

// LimitsWarning ends the warning that names the default limits which no cgroup holds here.
const LimitsWarning = "held by resource limits and a watchdog, not by a cgroup"

// Usage is what the skill and its descendants used. With a cgroup the figures are the kernel's own for the whole box, init included;
// without one they are init's, which knows of reaped descendants only. What this kernel or this run cannot tell is absent, never zero.
type Usage struct {
	UserMS   float64 `json:"user_ms"`
	SystemMS float64 `json:"system_ms"`
	// MaxRSS is the largest resident set of one process in bytes.
	MaxRSS      int64 `json:"max_rss_bytes"`
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`

	MemoryPeak  *int64    `json:"memory_peak,omitempty"`  // bytes, memory.peak: since Linux 5.19
	OOMKills    *int64    `json:"oom_kills,omitempty"`    // processes, memory.events
	PidsPeak    *int64    `json:"pids_peak,omitempty"`    // processes and threads, pids.peak: since Linux 6.2
	PidsRefused *int64    `json:"pids_refused,omitempty"` // forks refused at resources.pids, pids.events
	Throttled   *float64  `json:"throttled_ms,omitempty"` // time for which resources.cpu held the skill back, cpu.stat
	IO          *IO       `json:"io,omitempty"`           // io.stat, all disks together
	Pressure    *Pressure `json:"pressure,omitempty"`     // where the kernel has CONFIG_PSI
	Net         *Net      `json:"net,omitempty"`          // where the policy has egress rules
}

// Net is what passed the way out of the box: bytes are those within connections.
type Net struct {
	Lookups     int64 `json:"lookups"`
	Connections int64 `json:"connections"`
	Refused     int64 `json:"refused"` // lookups, connections and packets
	Sent        int64 `json:"bytes_out"`
	Received    int64 `json:"bytes_in"`
}

// Flow is a lookup that was answered or a connection that was allowed. What was refused is a Denial. In a sinkhole everything is a Flow that
// a limit did not refuse.
type Flow struct {
	Time       time.Time `json:"time"`
	Kind       string    `json:"kind"`                // "dns" or "connection"
	Direction  string    `json:"direction,omitempty"` // "in" where the caller made the connection; Address and Port are then the box's
	Name       string    `json:"name"`                // as asked for, or as the client told the server; "" where a rule names the address
	Address    string    `json:"address,omitempty"`
	Port       uint16    `json:"port,omitempty"`
	Proto      string    `json:"proto"` // "tcp" or "udp"; the type of a lookup
	Rule       string    `json:"rule"`  // the line that allowed it, or with Refused what would not have
	Error      string    `json:"error,omitempty"`
	Sent       int64     `json:"bytes_out,omitempty"`
	Received   int64     `json:"bytes_in,omitempty"`
	DurationMS float64   `json:"duration_ms"`
	Sinkhole   bool      `json:"sinkhole,omitempty"` // it ended in skillboxd and went nowhere
	Refused    bool      `json:"refused,omitempty"`  // with Sinkhole: the rules would not have allowed it
	Hint       string    `json:"hint,omitempty"`     // with Refused: the smallest change of the policy that would allow it
	Count      int64     `json:"count,omitempty"`    // with Sinkhole: datagrams

	First string `json:"-"` // what the skill said first, in a sinkhole: for the audit log alone
}

// IO is what went to and came from disks; what the page cache held is not in it.
type IO struct {
	ReadBytes  int64 `json:"read_bytes"`
	WriteBytes int64 `json:"write_bytes"`
	Reads      int64 `json:"reads"`
	Writes     int64 `json:"writes"`
}

// Pressure is for how long, in milliseconds, at least one task of the box waited for each resource ("some" of PSI).
type Pressure struct {
	CPUMS    float64 `json:"cpu_ms"`
	MemoryMS float64 `json:"memory_ms"`
	IOMS     float64 `json:"io_ms"`
}

// Error says what went wrong and where, so that a caller can show it at the right place.
type Error struct {
	Message string `json:"message"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Import is an image that lies here ("oci:DIR", "docker-archive:FILE") and has to be taken into the store before the call can be made.
	Import string `json:"import,omitempty"`
}

func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.File != "" && e.Line > 0 {
		text = fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, text)
	} else if e.File != "" {
		text = e.File + ": " + text
	}
	return text
}

// Denial is something that the skill tried and a layer refused.
type Denial struct {
	Kind string `json:"kind"` // "syscall", "dns", "connection", "file", "exec" or "env"
	What string `json:"what"`
	Rule string `json:"rule"`

	Direction string `json:"direction,omitempty"` // as in Flow
	Hint      string `json:"hint"`
	Count     int64  `json:"count"`

	Recorded bool `json:"-"` // the audit log has it already, as what the skill did

	// What the audit log has of it apart; What is all of it in words.
	Errno   string `json:"-"` // of a system call: what the skill was told
	Name    string `json:"-"` // the call's, or that of a lookup or connection
	Detail  string `json:"-"` // the argument of a system call that decided
	Address string `json:"-"`
	Port    uint16 `json:"-"`
	Proto   string `json:"-"` // as in Flow
	First   string `json:"-"` // as in Flow
}

// Output is a file taken from /output.
type Output struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Change is something that the skill changed in the copy of its bundle. Nothing of it comes back to the bundle.
type Change struct {
	Path string `json:"path"` // below the bundle; a directory's ends in /
	Kind string `json:"kind"` // "added", "changed" or "removed"
	Size int64  `json:"size"` // bytes of a file that is there now
}

// Named is a skill or a policy with its digest.
type Named struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// Sandbox says how the skill was held; each layer was checked from inside.
type Sandbox struct {
	Mode   string            `json:"mode"` // "root" or "rootless"
	Layers map[string]string `json:"layers"`
	Image  string            `json:"image,omitempty"` // digest of the image that is the root; "" where the base is none
	// Start is how far the box was when the call came: Cold, Prepared, Preloaded or InSession; "" where there was none.
	Start string `json:"start"`
	// NotPreloaded says why the box was not preloaded where the policy asks for it and a later call will be no better off.
	NotPreloaded string `json:"not_preloaded,omitempty"`
}

// What a box had done when its call came.
const (
	Cold      = "cold"      // nothing: it was made for this call
	Prepared  = "prepared"  // everything but to start the skill
	Preloaded = "preloaded" // the interpreter had started and imported what the script imports
	InSession = "session"   // it was there: its session's
)

// Normalize replaces nil lists by empty ones, so that the envelope always has the same shape.
func (r *Result) Normalize() {
	if r.Denials == nil {
		r.Denials = []Denial{}
	}
	if r.Warnings == nil {
		r.Warnings = []string{}
	}
	if r.Outputs == nil {
		r.Outputs = []Output{}
	}
	if r.Phases == nil {
		r.Phases = map[string]float64{}
	}
	if r.Sandbox.Layers == nil {
		r.Sandbox.Layers = map[string]string{}
	}
}

// Failure is the envelope of a run that never was.
func Failure(verdict string, err *Error) *Result {
	r := &Result{Verdict: verdict, ExitCode: CodeFailed, Error: err}
	r.Normalize()
	return r
}
