// Package wire carries one bounded JSON message and the descriptors that belong to it over a unix stream socket.
//
// Both of skillbox's own protocols use it: client ↔ skillboxd (package helper) and skillboxd ↔ the box's init (package boxinit).
//
//	0       4           8                    8+length
//	┌───────┬───────────┬────────────────────┐
//	│ "SKB1"│ length BE │ JSON, one value    │   descriptors: one SCM_RIGHTS message on the first byte
//	└───────┴───────────┴────────────────────┘
//
// A reader refuses a wrong magic, a frame above MaxFrame, more than MaxFiles descriptors and a truncated control message, and
// closes whatever it had received by then: a peer can neither make it allocate without bound nor leave descriptors behind.
package wire

import "errors"

const (
	// MaxFrame is the largest JSON body in bytes.
	MaxFrame = 4 << 20
	// MaxFiles is the largest number of descriptors in one frame; the kernel's own limit is 253 (SCM_MAX_FD).
	MaxFiles = 128

	headerSize = 8
	magic      = "SKB1"
)

// ErrProtocol says that the peer does not speak this protocol or overstepped its bounds. The connection is of no use afterwards.
var ErrProtocol = errors.New("wire: protocol error")
