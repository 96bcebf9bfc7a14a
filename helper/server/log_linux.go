package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"skillbox/helper"
)

// NewLog logs to a service's log, which stderr already is, as JSON, one object to a line. A log that has become too long is put aside;
// stderr is then the new one.
func NewLog(dir *os.File) *slog.Logger {
	return slog.New(slog.NewJSONHandler(&logFile{dir: dir}, &slog.HandlerOptions{ReplaceAttr: clip}))
}

// maxWord is how many bytes a line tells of one text, which may be a stranger's.
const maxWord = 1000

func clip(_ []string, a slog.Attr) slog.Attr {
	text := a.Value.String()
	if kind := a.Value.Kind(); len(text) <= maxWord || kind != slog.KindString && kind != slog.KindAny {
		return a
	}
	return slog.String(a.Key, text[:maxWord]+"…")
}

// logFile is stderr.
type logFile struct {
	mu  sync.Mutex
	dir *os.File
}

func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var st unix.Stat_t
	err := unix.Fstat(unix.Stderr, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size >= helper.MaxLog {
		err = l.renew()
	}
	if err != nil {
		return 0, err // rather lose a line than grow without a limit
	}
	return os.Stderr.Write(line)
}

func (l *logFile) renew() error {
	log, err := helper.OpenLog(l.dir)
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(log.Fd()), unix.Stderr, 0); err != nil {
		return errors.Join(fmt.Errorf("server: log: %w", err), log.Close())
	}
	return log.Close()
}
