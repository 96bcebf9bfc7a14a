package scan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/audit"
	"skillbox/client"
	"skillbox/helper"
)

// Place is a directory that is nobody else's, with the audit log of the runs that are made in it, and what they need. Close removes it.
type Place struct {
	dir  string
	lock *os.File // the directory; whoever holds it shared works in it, and the kernel lets go when the process dies
	runs int
}

// placeName is how the names of places begin.
const placeName = "skillbox-scan-"

// NewPlace makes one in the directory for temporary files, and removes those whose process was killed.
func NewPlace() (*Place, error) {
	if err := sweep(); err != nil {
		return nil, err
	}
	for {
		dir, err := os.MkdirTemp("", placeName) // mode 0700
		if err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		lock, err := lockDir(dir, unix.LOCK_SH)
		if err != nil {
			return nil, errors.Join(err, removeHome(dir))
		}
		if lock != nil {
			return &Place{dir: dir, lock: lock}, nil
		}
		// Another scan took it for one that was left, and removes it.
	}
}

// Close removes the place with the log in it.
func (p *Place) Close() error { return errors.Join(removeHome(p.dir), p.lock.Close()) }

// lockDir locks a directory of this user's, if nobody else has a lock that forbids it and the directory is still there; otherwise it returns nil.
func lockDir(dir string, how int) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "scan: open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	var st, now unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		err = unix.Flock(fd, how|unix.LOCK_NB)
	}
	if err == nil {
		err = unix.Lstat(dir, &now)
	}
	switch {
	case err == unix.EWOULDBLOCK, err == unix.ENOENT, err == nil && (st.Ino != now.Ino || int(st.Uid) != os.Geteuid()):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(&os.PathError{Op: "scan: lock", Path: dir, Err: err}, f.Close())
	}
	return f, nil
}

// sweep removes this user's places that nobody works in.
func sweep() error {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), placeName+"*"))
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	for _, dir := range left {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue // another user's, or gone
		}
		lock, err := lockDir(dir, unix.LOCK_EX)
		if err != nil {
			return err
		}
		if lock != nil {
			if err := errors.Join(removeHome(dir), lock.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Call is one run under observation. The zero value of each field but Bundle is a default.
type Call struct {
	Bundle  string            // directory
	Policy  string            // text of the policy that holds; what the bundle declares for itself does not
	Words   []string          // as client.Call
	Entry   string            // likewise
	Params  []byte            // one JSON value; nil for none
	Inputs  map[string]string // files that the skill finds in /input, paths by name
	Env     map[string]string // values for the names that the policy passes on; nothing of this process's
	Timeout time.Duration     // 0 is the policy's
	Output  string            // directory that takes the files left in /output; "" is nowhere
}

// Run starts the skill once, in a box of its own, and returns what was recorded of it. A skill that fails, hangs or is killed is a Run; an error
// says that it could not be started or observed, and then nothing is known about it. The log of the run lies in the place only.
func (p *Place) Run(ctx context.Context, c Call) (*Run, *client.Result, error) {
	p.runs++
	path := filepath.Join(p.dir, "policy-"+strconv.Itoa(p.runs)+".yaml")
	if err := os.WriteFile(path, []byte(c.Policy), 0o600); err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	env := c.Env
	if env == nil {
		env = map[string]string{}
	}
	result, err := client.Exec(ctx, client.Call{
		Bundle: c.Bundle, Policy: path, Mode: "oneshot", Words: c.Words, Entry: c.Entry, Params: c.Params, Inputs: c.Inputs, Env: env, Timeout: c.Timeout,
		Output: c.Output, AuditDir: p.log(), IgnoreDeclared: true,
	})
	if err != nil {
		return nil, nil, err
	}
	if result.Verdict == helper.Failed || result.Verdict == helper.Refused {
		if result.Error != nil {
			return nil, result, result.Error
		}
		return nil, result, errors.New("scan: the run did not start, and nothing says why")
	}
	r := &Run{ID: result.ID, Params: string(c.Params), Verdict: result.Verdict, ExitCode: result.ExitCode, Duration: time.Duration(result.DurationMS * float64(time.Millisecond))}
	if r.Events, err = p.records(result.ID); err != nil {
		return nil, result, err
	}
	return r, result, r.complete()
}

// log is the directory of the audit log.
func (p *Place) log() string { return filepath.Join(p.dir, "audit") }

func (p *Place) records(run string) (all []audit.Record, err error) {
	if run == "" {
		return nil, errors.New("scan: the run has no id, so its records cannot be found")
	}
	for r, err := range audit.Read(p.log(), audit.Query{Run: run}) {
		if err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// complete takes from the records what the run was, and refuses one whose end is missing: nobody knows then what was not recorded.
func (r *Run) complete() error {
	var ended bool
	for _, e := range r.Events {
		switch d := e.Detail.(type) {
		case audit.Started:
			r.Command = d.Command
		case audit.Ended:
			ended, r.Dropped = true, d.Dropped
		}
	}
	if !ended {
		return fmt.Errorf("scan: the log of run %s has no end", r.ID)
	}
	return nil
}
