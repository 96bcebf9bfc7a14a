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
//	signature               a file that says who answers for the bundle, optional
//	params                  anything readable, optional
//	input                   a readable file, one for each of Request.Inputs
//	listener                a socket that listens, one for each of Request.Publish
//	socket-dir              the directory of one, one for each of Request.Publish that has a Socket
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
	OpBundleShow    = "bundle-show"    // answered with BundleShown; passes a bundle
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

// Plain says of an operation that it makes nothing and reads nothing but text, a policy's or a bundle's manifest's: a skillboxd without any namespace of its own can
// answer it (SpawnPlain), on machines too where no sandbox works.
func Plain(op string) bool {
	return op == OpPolicyCheck || op == OpPolicySchema || op == OpPolicyInit || op == OpPolicyExplain || op == OpBundleShow || op == OpDoctor
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
	WorkDir    string            `json:"workdir,omitempty"`     // --workdir: an absolute path in the box, "" is the bundle's
	MountAt    string            `json:"mount_at,omitempty"`    // --mount-at
	EnvSet     map[string]string `json:"env_set,omitempty"`     // --env NAME=VALUE
	EnvPass    []string          `json:"env_pass,omitempty"`    // --env NAME
	TimeoutMS  int64             `json:"timeout_ms,omitempty"`  // --timeout
	MaxFiles   int               `json:"max_files,omitempty"`   // --max-files
	MaxBytes   int64             `json:"max_bytes,omitempty"`   // --max-bytes

	// Of programs that make requests for a purpose of their own, such as skillbox-mcp.
	Command  []string          `json:"command,omitempty"`  // all words of the command, instead of what policy, bundle and Words say
	Binds    []Bind            `json:"binds,omitempty"`    // beside those of the policy
	Follow   bool              `json:"follow,omitempty"`   // tell of refusals while the skill runs, by Reply.Denied
	Defaults map[string]string `json:"defaults,omitempty"` // fields of the policy with one value, that hold where it does not name them

	Publish []Publish `json:"publish,omitempty"` // ports of the box to be reached from outside, one for each listener

	Session string `json:"session,omitempty"`  // whose call this is, or which is to stop
	IdleMS  int64  `json:"idle_ms,omitempty"`  // of a session that starts: --idle, 0 is SessionIdle
	TotalMS int64  `json:"total_ms,omitempty"` // --total, 0 is SessionTotal

	Manifest *Manifest `json:"manifest,omitempty"` // --manifest
	Ways     []string  `json:"ways,omitempty"`     // WayTo the files of --policy and --manifest: no skill may write there
	// RequireDigest is what the bundle must be, "" for anything; TrustRemoteCode lets one that the host does not know have more than the floor.
	RequireDigest   string `json:"require_digest,omitempty"`
	TrustRemoteCode bool   `json:"trust_remote_code,omitempty"`

	TrustBundlePolicy bool `json:"trust_bundle_policy,omitempty"`
	// IgnoreBundlePolicy leaves the bundle's own policy out but for its command: who observes a skill gives it what it did not ask for.
	IgnoreBundlePolicy bool   `json:"ignore_bundle_policy,omitempty"`
	Capture            bool   `json:"capture,omitempty"` // --json
	TTY                bool   `json:"tty,omitempty"`
	Rows               uint16 `json:"rows,omitempty"`
	Cols               uint16 `json:"cols,omitempty"`
	Term               string `json:"term,omitempty"`
	OCI                bool   `json:"oci,omitempty"` // plan --oci
	CacheDir           string `json:"cache_dir,omitempty"`
	ImageDir           string `json:"image_dir,omitempty"` // the caller's images; those of the system come after them

	// Of a helper of the caller's own; the system service knows all of this by itself.
	AuditDir    string `json:"audit_dir,omitempty"`    // where the caller's audit log lies
	AuditConfig string `json:"audit_config,omitempty"` // which file says how it is kept; "" for a log that nothing is said of
	Asker       Asker  `json:"asker,omitzero"`
}

// Bind is a path of the host's that the skill sees.
type Bind struct {
	Flag  string `json:"flag"` // that says so, for messages
	Host  string `json:"host"` // absolute
	Path  string `json:"path"` // in the box
	Write bool   `json:"write,omitempty"`
}

// Manifest is what a manifest of another system asks for, see policy.Manifest.
type Manifest struct {
	File   string            `json:"file"`
	Policy json.RawMessage   `json:"policy"`
	Places map[string][2]int `json:"places,omitempty"`
	Egress bool              `json:"egress,omitempty"`
	Bundle bool              `json:"bundle,omitempty"` // it names the bundle's directory too
	Uses   []string          `json:"uses,omitempty"`
}

// Publish asks for a port of the box at a socket that the caller has made.
type Publish struct {
	Port    string `json:"port"`             // its number or its name, as the policy has it
	Address string `json:"address"`          // for messages and records
	Socket  string `json:"socket,omitempty"` // name of a unix socket in its directory, which is removed at the end
}

// Asker is the process that asks for a call, in its own words.
type Asker struct {
	PID     int    `json:"pid"`
	Process string `json:"process"` // its name
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
	// Denied, with Request.Follow, is what was refused since this was last sent; the Result has all of it. It comes before the answer, and any number of times.
	Denied []Denial `json:"denied,omitempty"`
	// Declined is why the system service does not serve this caller at all: nothing was done, and another skillboxd may.
	Declined *Error          `json:"declined,omitempty"`
	Plan     json.RawMessage `json:"plan,omitempty"` // the document that OpPlan and the plain operations are answered with
}
