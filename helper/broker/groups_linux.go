package broker

import (
	"errors"

	"skillbox/cgroup"
)

// What a worker itself takes beside its boxes, with their inits: bytes, and processes and threads. It is above the quota, so that it is the
// worker that refuses, with a word, and not the kernel.
const workerMemory, workerPids = 512 << 20, 2048

// delegate finds where workers' groups go. Without any, boxes are held by other means or refused, as everywhere.
func (b *Broker) delegate() (*cgroup.Delegation, error) {
	groups, err := cgroup.Delegate()
	var none *cgroup.Unavailable
	if errors.As(err, &none) {
		b.Log.Warn("no control groups: quotas are held by counting alone", "why", none.Message, "hint", none.Hint)
		return nil, nil
	}
	return groups, err
}

// newGroup makes a worker's; nil is that there are none.
func (b *Broker) newGroup(w *worker) (*cgroup.Delegated, error) {
	if b.groups == nil {
		return nil, nil
	}
	return b.groups.Worker(w.uid, w.gid, cgroup.Limits{Memory: w.quota.Memory + workerMemory, Pids: w.quota.Pids + workerPids})
}
