package audit

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// IsFull tells whether an error of Append means that the disk, or the user's quota of it, is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// reserveBytes are kept free for verdicts by a file that is removed when the disk is full.
const reserveBytes = 256 << 10

// appendOrDrop is DropDetail: what does not fit is left out and counted, verdicts last.
func (l *Log) appendOrDrop(events []Event) error {
	if l.full && time.Since(l.tried) > time.Second {
		l.tried = time.Now()
		l.full = !l.keepReserve()
	}
	if !l.full {
		err := l.write(events)
		if !IsFull(err) {
			return err
		}
		l.full, l.tried = true, time.Now()
	}
	var verdicts []Event
	for _, e := range events {
		if carriesVerdict(e.Kind) {
			verdicts = append(verdicts, e)
			continue
		}
		l.dropped++
		l.droppedOf[e.Run]++
	}
	if len(verdicts) == 0 {
		return nil
	}
	err := l.write(verdicts)
	if !IsFull(err) {
		return err
	}
	if err2 := l.dir.remove(reserveFile); err2 != nil {
		return errors.Join(err, err2)
	}
	return l.write(verdicts)
}

// keepReserve tells whether there is room for the reserve, or it is there already.
func (l *Log) keepReserve() bool {
	f, err := l.dir.open(reserveFile, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() == reserveBytes {
		return l.room()
	}
	// Written and not only reserved: not every file system knows how to reserve, and it is done once.
	if _, err = f.WriteAt(make([]byte, reserveBytes), 0); err != nil {
		// Room that it has taken must not be missed by what it is for.
		return l.dir.remove(reserveFile) != nil
	}
	return l.room()
}

// room tells whether there is more than a few records' space beside the reserve.
func (l *Log) room() bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(l.dir.Fd()), &fs) == nil && fs.Bavail*uint64(fs.Bsize) > reserveBytes/4
}
