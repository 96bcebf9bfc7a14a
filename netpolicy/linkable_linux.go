package netpolicy

// Linkable says why boxes cannot have links of their own in the calling process's network namespace, for packets of each family; nil is
// that they can. What the host's administrator can change is a *NoForwarding. Nothing is changed: whoever creates a link switches
// forwarding on.
func Linkable() (no4, no6 error) {
	ls, err := openLinks()
	if err != nil {
		return err, err
	}
	defer ls.Close()
	if no4 = ls.forwardable(); no4 != nil {
		return no4, no4
	}
	return nil, ls.forwardable6()
}
