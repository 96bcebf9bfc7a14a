// Package boxinit is pid 1 of a box: the last program of ours that runs inside every layer, and the parent of the skill.
//
// skillboxd starts it through libcontainer with no capability, no new privileges, /dev/null as stdio and one socket. From then on:
//
//	skillboxd                                 init
//	    ── Setup: filters ───────────────────►  installs them on all its threads
//	    ◄─ Report: what it sees (+ listener) ─  looks at its own credentials, mounts, namespaces, descriptors
//	       Report.Check decides; the box is now prepared and may wait for as long as one likes
//	    ── Call: argv, env, stdio fds ───────►  starts the skill as its child
//	    ◄─ Started (+ pty) ──────────────────
//	    ── Signal ───────────────────────────►  to every process of the box but init
//	    ◄─ Exit: wait status, usage ─────────  and exits, which ends whatever is left in the pid namespace; if it is alone there, it waits
//	                                           to be ended: skillboxd can then answer its caller first
//
// In the box of a session (Call.Stay) it does not exit, and takes the next Call; what the skill left running stays.
//
// A box may be preloaded before its call comes: its interpreter then has started, and imported what the script imports.
//
//	── Preload: argv, env, stdio fds ────►  starts the interpreter, waits until it has imported, stops it
//	◄─ Preloaded ────────────────────────
//	── Call: argv, env ──────────────────►  tells the interpreter, and lets it go on
//
// Init reaps what the skill orphans. It keeps no environment, a neutral argv and is not dumpable, so that nothing of ours can be
// read through /proc/1. It obeys nobody but its socket: signals sent by the skill are dropped.
package boxinit

import (
	"net/netip"
	"time"
)

// Path is where init's binary lies inside a box; Socket is its descriptor there.
const (
	Path   = "/run/skillbox/init"
	Socket = 3
)

// Version changes whenever the messages do: both binaries come from one build.
const Version = 5

// Setup is the first message to init.
type Setup struct {
	Version  int
	Filters  [][]byte // seccomp programs in install order: packed struct sock_filter
	Listener int      // index of the filter that gets a user-notification listener, -1 for none
	// OpenFiles is the skill's RLIMIT_NOFILE. Init itself keeps more until the skill starts: the kernel refuses to pass a descriptor
	// to whom has as many in flight as the sender may have open, counted for the user (ETOOMANYREFS, unix(7)), whom another box of
	// the same user could have used up.
	OpenFiles uint64
	// NeverReached are addresses, one of IPv4 and one of IPv6, that the rules of a box with a way out always refuse: init tries them.
	NeverReached []netip.Addr
}

// Call asks for the skill to be started; its three descriptors are stdin, stdout and stderr (none with TTY).
type Call struct {
	Argv []string
	Env  []string
	Cwd  string
	Stay bool // after the first process of the call init waits for another Call
	TTY  bool
	Rows uint16
	Cols uint16
}

// Signal asks for a signal to every process of the box except init.
type Signal struct{ Signal int }

// Preload asks for an interpreter to be started ahead of its call, with everything of the call but the words that follow the script and
// what its environment brings. Its three descriptors are stdin, stdout and stderr.
type Preload struct {
	Argv   []string // up to the script
	Env    []string
	Cwd    string
	Late   []string      // variables whose values come with the call: code that asks for them now cannot be preloaded
	Within time.Duration // what that may take
}

// Message is what skillboxd sends after Setup: exactly one field is set.
type Message struct {
	Preload *Preload `json:",omitempty"`
	Call    *Call    `json:",omitempty"`
	Signal  *Signal  `json:",omitempty"`
}

// Reply is what init sends after its Report: exactly one field is set.
type Reply struct {
	Preloaded *Preloaded `json:",omitempty"`

	Started *Started `json:",omitempty"`
	Exit    *Exit    `json:",omitempty"`
}

// Preloaded answers a Preload. Where it is refused, the box is of no use any more.
type Preloaded struct {
	Refused string // why the interpreter does not wait for a call, "" if it does
}

// Started answers a Call: the skill's pid inside the box, or why it could not be started. With TTY the pty's master comes along.
type Started struct {
	PID   int
	Error string // "" when started
	Code  int    // exit code for Error in the shells' convention: 126 not executable, 127 not found, 125 otherwise
}

// Exit reports the end of the skill's first process. In a session its figures are of what was reaped since the Exit before.
type Exit struct {
	Status   uint32 // as wait4(2) gives it
	UserUS   int64  // CPU time of the skill and its reaped descendants, in microseconds
	SystemUS int64
	MaxRSS   int64 // largest resident set of one process, bytes
	Alone    bool  // no process is left in the box but init
}
