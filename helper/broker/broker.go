// Package broker is the system service: root's half of it, which decides who a caller is and does the few things that take root. All else
// is done by workers, one for each calling user: a skillboxd with that user's rights in a user namespace that root has made.
//
//	client ── connect ──► broker: who is it? quota?            reads nothing that the client says
//	                        │ the accepted socket (wire.Pass)
//	                        ▼
//	client ◄── request ── worker: package server               opens what the caller names with the caller's rights
//	                        │ errands: Ask, Answer
//	                        ▼
//	                      broker: makes a link for a network namespace that the worker's user namespace owns
//
// A worker's user namespace maps 0 to the caller and the following ids to a block that no other worker has. It belongs to root: the caller
// can neither enter it nor trace what runs there.
package broker

import (
	"encoding/json"
	"net/netip"
	"time"

	"skillbox/helper"
	"skillbox/policy"
)

// Dir is where the service's files are, and Socket the name of its socket there.
const (
	Dir    = helper.SystemDir
	Socket = helper.SystemSocket
)

// Start is what a worker is told first.
type Start struct {
	UID   uint32
	Idle  time.Duration
	Quota policy.Quota
}

// Ask is an errand that a worker has for the broker: one field is set.
type Ask struct {
	Linkable bool   `json:",omitempty"` // can there be links?
	Link     *Link  `json:",omitempty"` // make one for the network namespace that comes along
	Unlink   string `json:",omitempty"` // end the link of the box with this id
	Ready    bool   `json:",omitempty"` // the worker takes callers
	Leaving  bool   `json:",omitempty"` // send nobody else

	Records []json.RawMessage `json:",omitempty"` // for the audit log, see audit.Pack
}

// Link is a link that a box is to have.
type Link struct {
	ID     string
	IPv6   bool           `json:",omitempty"`
	Opened []netip.Prefix `json:",omitempty"`
}

// Answer is what came of an errand.
type Answer struct {
	No4, No6 *No    `json:",omitempty"` // of Linkable
	Error    string `json:",omitempty"`
}

// No says why there can be no links, and what would help.
type No struct {
	Message string
	Hint    string `json:",omitempty"`
}
