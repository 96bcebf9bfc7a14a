// Package auditlog opens an audit log as its administrator wants it kept.
package auditlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/audit/sink"
	"skillbox/helper"
	"skillbox/helper/access"
	"skillbox/policy"
)

// Read reads what is said of a user's log. Root's is the machine's, and path is the system service's file; another user's path is one of the
// user's own, and where that does not exist the machine's for users holds. Without a file, or with path "", the defaults do. A mistake is a
// policy.Errors or a *helper.Error.
func Read(path string, uid int) (*policy.AuditLog, error) {
	if path == "" {
		return &policy.AuditLog{}, nil
	}
	if uid == 0 {
		f, err := access.Read(path)
		if err != nil {
			return nil, err
		}
		return &f.Audit, nil
	}
	for _, path := range []string{path, helper.UsersAuditConfig} {
		text, err := read(path, 0o022, "chmod 644")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return policy.ParseAuditLog(path, text)
	}
	return &policy.AuditLog{}, nil
}

// read reads a small file that has none of these rights.
func read(path string, never fs.FileMode, remedy string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // a FIFO would wait
	if err != nil {
		return nil, fmt.Errorf("auditlog: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("auditlog: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&never != 0 {
		return nil, &helper.Error{Message: fmt.Sprintf("must be a regular file, with none of the rights %#o for others", never), File: path, Hint: remedy}
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("auditlog: %s: %w", path, err)
	}
	return text, nil
}

// Open opens the log in dir. warn is told of sinks that cannot be reached, and of what they did not get; nil is told nothing.
func Open(dir string, c *policy.AuditLog, warn sink.Warn) (*audit.Log, error) {
	opts := audit.Options{
		OnFull: audit.OnFull(c.OnFull), Sync: audit.Sync(c.Sync), MaxSegment: c.MaxSegment, MaxSegmentAge: c.MaxSegmentAge, MaxTotal: c.MaxTotal, MaxAge: c.MaxAge,
	}
	if len(c.Sinks) > 0 {
		var all []sink.Config
		for _, s := range c.Sinks {
			token, err := tokenOf(s.TokenFile)
			if err != nil {
				return nil, err
			}
			all = append(all, sink.Config{Type: s.Type, Socket: s.Socket, Endpoint: s.Endpoint, Token: token, Queue: int(s.Queue)})
		}
		set, err := sink.Open(all, warn)
		if err != nil {
			return nil, err
		}
		opts.Sink = set
	}
	return audit.Open(dir, opts)
}

func tokenOf(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := read(path, 0o027, "chmod 600")
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &helper.Error{Message: "holds no token: one line of visible ASCII", File: path}
	}
	return token, nil
}
