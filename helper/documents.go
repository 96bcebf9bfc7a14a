package helper

import (
	"encoding/json"
	"time"
)

// Text answers OpPolicySchema and OpPolicyInit.
type Text struct {
	Text string `json:"text"`
}

// PolicyChecked answers OpPolicyCheck: what the policy says with its defaults, or everything that is wrong with it.
type PolicyChecked struct {
	File   string   `json:"file"`
	Valid  bool     `json:"valid"`
	Errors []*Error `json:"errors"`
	Policy string   `json:"policy,omitempty"`
	Digest string   `json:"digest,omitempty"`
}

// BundleShown answers OpBundleShow, and is part of the answer to OpPlan: what a bundle says about itself. It is the skill's own word.
type BundleShown struct {
	Kind         string            `json:"kind"`
	Name         string            `json:"name"`
	Version      string            `json:"version,omitempty"`
	Description  string            `json:"description,omitempty"`
	Manifest     string            `json:"manifest,omitempty"` // its path in the bundle
	License      string            `json:"license,omitempty"`
	Needs        string            `json:"compatibility,omitempty"`
	AllowedTools []string          `json:"allowed_tools,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Requirements []string          `json:"requirements,omitempty"`
	EnvVars      []string          `json:"env_vars,omitempty"`
	Entries      []BundleEntry     `json:"entries"`
	Declares     string            `json:"declares_policy,omitempty"` // the file that holds the policy which it asks for
	Document     json.RawMessage   `json:"document,omitempty"`        // Skillware: the manifest as JSON
	Warnings     []string          `json:"warnings"`
}

// BundleEntry is one thing that a bundle offers to be called.
type BundleEntry struct {
	Name    string          `json:"name"`
	Command []string        `json:"command"`
	Script  string          `json:"script,omitempty"` // its path in the bundle
	Schema  json.RawMessage `json:"params_schema,omitempty"`
}

// Explained answers OpPolicyExplain: what network.egress and network.deny come to.
type Explained struct {
	Table        string        `json:"table"` // a line for each destination that a rule names
	Destinations []Destination `json:"destinations"`
}

// Destination is what a policy says about one name or address, port and protocol.
type Destination struct {
	To      string `json:"to"` // in normal form: "api.example.com:443", "[2001:db8::1]:53/udp"
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"` // "policy.yaml:12", or "" where no rule decided
	Why     string `json:"why"`
	Hint    string `json:"hint,omitempty"`
}

// Status answers OpStatus: what a service does and has done.
type Status struct {
	Since      time.Time        `json:"since"`
	Running    []Running        `json:"running"`
	Sessions   []SessionStatus  `json:"sessions"`
	Ready      []Ready          `json:"ready"`
	Verdicts   map[string]int64 `json:"verdicts"`    // of the calls that have ended
	FoundReady int64            `json:"found_ready"` // calls that found a box prepared or preloaded
	// Boxes are all that there are, nil where nobody has asked for each (AllBoxes).
	Boxes []BoxStatus `json:"boxes,omitzero"`
}

// AllBoxes as the word of an OpStatus asks for Status.Boxes.
const AllBoxes = "boxes"

// Kinds of a BoxStatus; one that is ready is Prepared or Preloaded.
const (
	CallBox    = "call"
	SessionBox = "session"
)

// BoxStatus is a box that runs a call, is a session's, or is ready.
type BoxStatus struct {
	ID      string    `json:"id"` // the call's or the session's too
	Kind    string    `json:"kind"`
	Skill   string    `json:"skill"`
	Policy  string    `json:"policy"`
	Bundle  string    `json:"bundle"`            // its directory
	Command []string  `json:"command,omitempty"` // of a call
	State   string    `json:"state,omitempty"`   // of a session: "idle" or "busy"
	Since   time.Time `json:"since"`             // its call or session began, or it is ready
	// MemoryBytes is what it takes now: what its control group counts, or what its processes have that is no file's on disk, and its files
	// in memory. It is absent where it cannot be told.
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
}

// Running is a call that has not ended.
type Running struct {
	ID      string    `json:"id"`
	Skill   string    `json:"skill"`
	Policy  string    `json:"policy"`
	Command []string  `json:"command"`
	Since   time.Time `json:"since"`
}

// Ready are the boxes that wait for calls of one kind.
type Ready struct {
	Bundle    string    `json:"bundle"` // its directory
	Boxes     int       `json:"boxes"`
	Preloaded int       `json:"preloaded"` // of them
	Wanted    int       `json:"wanted"`
	Used      time.Time `json:"used"` // when a call of that kind was last served
}

// Machine answers OpDoctor: what only skillboxd can find out.
type Machine struct {
	HostFile HostFile `json:"host_file"`
	// ServiceFile is service.yaml, and KeptOut why the system service would not serve this caller by it; null if it would.
	ServiceFile HostFile `json:"service_file"`
	KeptOut     *Error   `json:"kept_out"`
	Groups      Groups   `json:"groups"`
	NoLink4     *Error   `json:"no_link4"` // why boxes of root's cannot have links of their own; null if they can
	NoLink6     *Error   `json:"no_link6"` // for IPv6
}

// HostFile is a file of the administrator's, such as the ceiling for the whole host, as skillboxd reads it.
type HostFile struct {
	Path   string   `json:"path"`
	Exists bool     `json:"exists"`
	UID    int      `json:"uid"` // who owns it
	Errors []*Error `json:"errors"`
}

// Groups is where boxes' control groups go, and what can be limited there. Where there can be none, Message says why.
type Groups struct {
	In          string   `json:"in"`
	Controllers []string `json:"controllers"`
	Message     string   `json:"message,omitempty"`
	Hint        string   `json:"hint,omitempty"`
}

// Stats answers OpStats: a service's figures since it started.
type Stats struct {
	Version       string           `json:"version"`
	Build         string           `json:"build"` // see Build
	Since         time.Time        `json:"since"`
	Calls         map[string]int64 `json:"calls"`          // that have ended, by verdict
	Succeeded     int64            `json:"succeeded"`      // exited with code 0
	Starts        map[string]int64 `json:"starts"`         // of calls that had a box, by the result's sandbox.start
	Durations     []Timing         `json:"durations"`      // of calls: "total", then their phases
	PreparedAhead Timing           `json:"prepared_ahead"` // of boxes that were prepared before their calls came
	Denials       map[string]int64 `json:"denials"`        // by kind
	Discarded     map[string]int64 `json:"discarded"`      // boxes that served no call, by reason
	Refused       map[string]int64 `json:"refused"`        // connections, by reason
	Swept         map[string]int64 `json:"swept"`          // what dead processes had left, by kind
	Boxes         Boxes            `json:"boxes"`
	Process       Process          `json:"process"`
	Metrics       string           `json:"metrics"` // where they are served: "", a socket's path, or an address
}

// Timing is how long something took. Median and 99th percentile are off by at most five percent.
type Timing struct {
	Phase    string  `json:"phase"`
	Count    int64   `json:"count"`
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
	MaxMS    float64 `json:"max_ms"`
}

// Boxes are a service's of now.
type Boxes struct {
	Running int `json:"running"`
	Ready   int `json:"ready"`
	Coming  int `json:"coming"` // being prepared for calls to come
}

// Process is what a service itself takes, its boxes not included.
type Process struct {
	ResidentBytes  int64   `json:"resident_bytes"`
	Descriptors    int     `json:"descriptors"`
	MaxDescriptors int64   `json:"max_descriptors"`
	Threads        int     `json:"threads"`
	Goroutines     int     `json:"goroutines"`
	CPUSeconds     float64 `json:"cpu_seconds"`
}
