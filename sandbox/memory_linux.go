package sandbox

// Memory is what the box takes now, in bytes: what its group counts (memory.current, with the page cache of what it has read), or where none
// does, memory of its processes that is no file's on disk, and its files in memory. False is that it cannot be told, as when the box has ended.
func (b *Box) Memory() (int64, bool) {
	n, ok := b.memory()
	return n, ok && b.Alive() // or init's number was another's
}

func (b *Box) memory() (int64, bool) {
	if b.group != nil {
		if n, ok := b.group.Memory(); ok {
			return n, true
		}
	}
	w, err := openWatchdog(b.jail.PID(), Watched{Memory: 1})
	if err != nil {
		return 0, false
	}
	defer w.close()
	return w.unshared(w.pids(), w.scratchBytes()), true
}
