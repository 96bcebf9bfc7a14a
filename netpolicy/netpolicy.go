// Package netpolicy makes the network of one box: a namespace of its own, owned by skillboxd's user namespace and not the box's,
// so that not even a capability gained inside could change it.
package netpolicy

// Description says what a box may reach. The zero value is nothing but its own loopback.
type Description struct{}
