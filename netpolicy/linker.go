package netpolicy

import (
	"net/netip"
	"os"
)

// LinkDescription says what a box's link is like.
type LinkDescription struct {
	ID     string         // the box's, unique on the machine; its first 13 characters name the host's end
	IPv6   bool           // not only IPv4
	Opened []netip.Prefix // what cidrs rules name of metadata, link-local, multicast and the like, see floorRanges
}

// Link is one that was made.
type Link interface {
	// Close ends it and takes away what of it lies outside of the box. It may be called when the box has gone; after an error, again.
	Close() error
}

// Linker connects a box's network namespace with the machine's. The rules there are in force before the first packet can pass.
type Linker func(ns *os.File, d LinkDescription) (Link, error)
