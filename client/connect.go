package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"skillbox/helper"
)

// Tries is how often a service may leave just when it is asked.
const Tries = 10

// own is auto once the system service has declined.
const own = "own"

// Connect finds who is to run a request. With mode "system" that is root's service for every user of the machine; with "user" the caller's own
// service, which is started if there is none, keeps boxes ready, and leaves after 10 minutes without calls; with "oneshot" a helper that is
// started for this call and ends with it. "auto" or "" is the first of these that there is. SKILLBOX_NO_DAEMON=1 in the environment forbids to
// start a service.
func Connect(mode string, r *helper.Request) (*helper.Peer, error) {
	forbidden := os.Getenv("SKILLBOX_NO_DAEMON") == "1"
	switch mode {
	case "oneshot":
		return helper.Spawn()
	case "user":
		if forbidden {
			return nil, &helper.Error{Message: "mode user: SKILLBOX_NO_DAEMON=1 forbids a helper that stays", Hint: "use mode oneshot"}
		}
		return service(r)
	case "system":
		p, err := systemService(r)
		if p == nil && err == nil {
			err = &helper.Error{Message: "mode system: the system service does not run here", Hint: "systemctl enable --now skillboxd.socket, or use mode user or oneshot"}
		}
		return p, err
	case "", "auto":
		// A socket that is not root's is nobody's to us: what follows needs none.
		if p, err := systemService(r); p != nil && err == nil {
			return p, nil
		}
	case own:
	default:
		return nil, &helper.Error{Message: fmt.Sprintf("mode %s: there are auto, system, user and oneshot", mode)}
	}
	if forbidden {
		return helper.Spawn()
	}
	p, err := service(r)
	if errors.Is(err, helper.ErrNoPlace) {
		return helper.Spawn()
	}
	return p, err
}

// Again says whether a request that came to an error is to be sent once more, and in which mode: who was asked did nothing.
func Again(mode string, tries int, err error) (next string, again bool) {
	var declined *helper.Declined
	switch {
	case errors.Is(err, helper.ErrRetired):
		return mode, tries < Tries
	case errors.As(err, &declined):
		return own, mode == "" || mode == "auto"
	}
	return mode, false
}

// service connects with the caller's own service, which serves clients of its build alone.
func service(r *helper.Request) (*helper.Peer, error) {
	var err error
	if r.Build, err = Build(); err != nil {
		return nil, err
	}
	return helper.Service()
}

// systemService connects with root's service; nil without an error is that there is none. Where no skillboxd lies beside this program, the
// version of the protocol is all that must be the same.
func systemService(r *helper.Request) (*helper.Peer, error) {
	r.Build, _ = Build()
	return helper.System()
}

// ConnectSession connects with the service that holds the caller's sessions: with mode "system" root's, with "user", and for now "auto" or "", the
// caller's own. Only the request that starts one starts a service.
func ConnectSession(mode string, r *helper.Request) (*helper.Peer, error) {
	switch mode {
	case "", "auto", "user":
	case "system":
		return Connect(mode, r)
	default:
		return nil, &helper.Error{Message: fmt.Sprintf("mode %s: sessions are a service's: there are auto, system and user", mode)}
	}
	if r.Op == helper.OpSessionStart {
		return Connect("user", r)
	}
	var err error
	if r.Build, err = Build(); err != nil {
		return nil, err
	}
	peer, err := helper.RunningService()
	if err == nil && peer == nil {
		err = &helper.Error{Message: fmt.Sprintf("no service runs, which session %q could be of", r.Session), Hint: "its service may have been replaced by a newer one, or have ended: start another with `skillbox session start`"}
	}
	return peer, err
}

// Build names the skillboxd that this program would start; a service of another build leaves when it is asked.
func Build() (string, error) {
	program, err := helper.Find("skillboxd")
	if err != nil {
		return "", err
	}
	return helper.Build(program)
}

// AuditDir is where the audit log of this user's calls lies; "" where neither XDG_STATE_HOME nor HOME says where.
func AuditDir() string { return helper.AuditDir(os.Geteuid(), os.Getenv) }

// AuditConfig is the file that says how that log is kept. It says nothing of a log in another directory.
func AuditConfig() string { return helper.AuditConfig(os.Geteuid(), os.Getenv) }

// Parent says who called the program that asks.
func Parent() helper.Asker { return asker(os.Getppid()) }

func asker(pid int) helper.Asker {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it may have ended
	return helper.Asker{PID: pid, Process: strings.TrimSuffix(string(name), "\n")}
}

// CacheDir is where digests of unchanged bundles are kept; "" for nowhere.
func CacheDir() string {
	if os.Geteuid() == 0 {
		return "/var/cache/skillbox"
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "skillbox")
}
