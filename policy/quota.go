package policy

// Quota is what one caller may take of the system service at a time.
type Quota struct {
	Calls       int64 // that run
	Boxes       int64 // that run or are ready
	Ready       int64 // boxes prepared ahead
	Memory      int64 // bytes: the sum of resources.memory of the calls that run
	Pids        int64 // the sum of their resources.pids
	Connections int64
}

// DefaultQuota holds where the administrator says nothing.
func DefaultQuota() Quota {
	return Quota{Calls: 32, Boxes: 64, Ready: 32, Memory: 8 * gib, Pids: 4096, Connections: 128}
}
