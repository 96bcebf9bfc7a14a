// Package helper is the protocol between the client and skillboxd, and the client's half of it. It uses no cgo and few packages:
// the client starts in about a millisecond because of that.
//
//	client                                      skillboxd
//	  ── Request + descriptors ─────────────────►  parse policy and bundle, grant, compile; prepare begins
//	  ◄─ Reply{Granted}: names of what it needs ─  only these environment values ever leave the client; not sent if none
//	  ── Message{Values} ───────────────────────►
//	  ── Message{Cancel | Resize} … ────────────►  while the skill runs
//	  ◄─ Reply{Result} ──────────────────────────  exactly one, whatever happened
//
// Frames are package wire's: at most 4 MiB and 128 descriptors. Closing the connection at any time ends the run. Descriptors are
// named by Request.Files in the order in which they are passed:
//
//	stdin, stdout, stderr   the caller's; with Capture stdout and stderr are files that take at most Granted.OutputLimit bytes
//	bundle                  a directory
//	policy                  a file, optional; Request.PolicyName is its name in messages
//	params                  anything readable, optional
//	input                   a readable file, one for each of Request.Inputs
//	outputs                 the write end of a pipe: a tar stream of what the skill left in /output (see package output)
//
// A session is begun by one request (bundle, policy), used by others, each on a connection of its own (all but bundle and policy), and outlives
// them all: closing one ends a call that runs, and its session, but not one that waits.
package helper

import "encoding/json"

// Version of the protocol; a skillboxd that speaks another refuses the request.
const Version = 1

// Operations of a Request.
const (
	OpExec          = "exec"
	OpPlan          = "plan"
	OpPolicyCheck   = "policy-check"   // answered with PolicyChecked
	OpPolicySchema  = "policy-schema"  // answered with Text
	OpPolicyInit    = "policy-init"    // answered with Text
	OpPolicyExplain = "policy-explain" // answered with Explained; Words are destinations
	OpDoctor        = "doctor"         // answered with Machine
	OpStatus        = "status"         // of a service, answered with Status; AllBoxes as the word asks for each box
	OpKill          = "kill"           // of a service, answered with Text; Words are the ids of calls and sessions that are to end
	OpStats         = "stats"          // of a service, answered with Stats
	OpMetrics       = "metrics"        // of a service, answered with Text: what Prometheus reads
	// One box for several calls: of a service only. A call in a session is as OpExec, in the box that is there, with the policy and the bundle of
	// its beginning: Request.Session says which, and only what differs by call is looked at (no bundle, no policy).
	OpSessionStart = "session-start" // answered with SessionStarted, or with a Result that says why not
	OpSessionExec  = "session-exec"
	OpSessionStop  = "session-stop" // answered with SessionStopped
)

// Plain says of an operation that it makes nothing and reads nothing but text: a skillboxd without any namespace of its own can
// answer it (SpawnPlain), on machines too where no sandbox works.
func Plain(op string) bool {
	return op == OpPolicyCheck || op == OpPolicySchema || op == OpPolicyInit || op == OpPolicyExplain || op == OpDoctor
}

// Served says of an operation that it is about a service: no other skillboxd knows it. A service answers it to clients of every build,
// for who looks must not make it leave.
func Served(op string) bool {
	return op == OpStatus || op == OpKill || op == OpStats || op == OpMetrics || op == OpSessionStop
}

// Request is the first message. Fields that come from flags count as the operator's word.
type Request struct {
	Version int      `json:"version"`
	Build   string   `json:"build,omitempty"` // of the skillboxd that the client would start, see Build; a service looks at it
	Op      string   `json:"op"`
	Files   []string `json:"files"` // the role of each descriptor

	BundleName string            `json:"bundle_name,omitempty"` // for messages only
	PolicyName string            `json:"policy_name,omitempty"` // for messages only
	Inputs     []string          `json:"inputs,omitempty"`      // names below /input
	Words      []string          `json:"words,omitempty"`       // after --
	Entry      string            `json:"entry,omitempty"`       // --entry
	EnvSet     map[string]string `json:"env_set,omitempty"`     // --env NAME=VALUE
	EnvPass    []string          `json:"env_pass,omitempty"`    // --env NAME
	TimeoutMS  int64             `json:"timeout_ms,omitempty"`  // --timeout
	MaxFiles   int               `json:"max_files,omitempty"`   // --max-files
	MaxBytes   int64             `json:"max_bytes,omitempty"`   // --max-bytes

	Session string `json:"session,omitempty"`  // whose call this is, or which is to stop
	IdleMS  int64  `json:"idle_ms,omitempty"`  // of a session that starts: --idle, 0 is SessionIdle
	TotalMS int64  `json:"total_ms,omitempty"` // --total, 0 is SessionTotal

	TrustBundlePolicy bool   `json:"trust_bundle_policy,omitempty"`
	Capture           bool   `json:"capture,omitempty"` // --json
	TTY               bool   `json:"tty,omitempty"`
	Rows              uint16 `json:"rows,omitempty"`
	Cols              uint16 `json:"cols,omitempty"`
	Term              string `json:"term,omitempty"`
	OCI               bool   `json:"oci,omitempty"` // plan --oci
	CacheDir          string `json:"cache_dir,omitempty"`
}

// Granted says that the call was granted and what it needs from the client.
type Granted struct {
	Env     []string `json:"env,omitempty"`     // names; those not set are left out
	Secrets []string `json:"secrets,omitempty"` // names; each must be set
}

// Values answers Granted.
type Values struct {
	Env     map[string]string `json:"env,omitempty"`
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Cancel asks for the end of the run: SIGTERM, and SIGKILL after the grace period; a second one kills at once.
type Cancel struct{}

// Resize is a new size of the caller's terminal.
type Resize struct{ Rows, Cols uint16 }

// Message is what a client sends after its Request: exactly one field is set.
type Message struct {
	Values *Values `json:"values,omitempty"`
	Cancel *Cancel `json:"cancel,omitempty"`
	Resize *Resize `json:"resize,omitempty"`
}

// Reply is what skillboxd sends: exactly one field is set.
type Reply struct {
	Granted *Granted `json:"granted,omitempty"`
	Result  *Result  `json:"result,omitempty"`
	Retired bool     `json:"retired,omitempty"` // a service that is leaving, or of another build: nothing was done, ask the next one
	// Declined is why the system service does not serve this caller at all: nothing was done, and another skillboxd may.
	Declined *Error          `json:"declined,omitempty"`
	Plan     json.RawMessage `json:"plan,omitempty"` // the document that OpPlan and the plain operations are answered with
}
