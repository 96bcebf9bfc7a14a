package client

import (
	"fmt"
	"os"
	"path/filepath"

	"skillbox/helper"
)

// Tries is how often a service may leave just when it is asked.
const Tries = 10

// Connect finds who is to run a request: with mode "oneshot", and for now "auto" or "", a helper that is started for this call and ends
// with it; with "user" the caller's own service, which is started if there is none, keeps boxes ready, and leaves after 10 minutes without
// calls. SKILLBOX_NO_DAEMON=1 in the environment forbids the latter.
func Connect(mode string, r *helper.Request) (*helper.Peer, error) {
	switch mode {
	case "", "auto", "oneshot":
		return helper.Spawn()
	case "user":
		if os.Getenv("SKILLBOX_NO_DAEMON") == "1" {
			return nil, &helper.Error{Message: "mode user: SKILLBOX_NO_DAEMON=1 forbids a helper that stays", Hint: "use mode oneshot"}
		}
		var err error
		if r.Build, err = Build(); err != nil {
			return nil, err
		}
		return helper.Service()
	}
	return nil, &helper.Error{Message: fmt.Sprintf("mode %s: there are auto, oneshot and user", mode)}
}

// ConnectSession connects with the service that holds the caller's sessions, with mode "user", and for now "auto" or "". Only the request that
// starts one starts a service.
func ConnectSession(mode string, r *helper.Request) (*helper.Peer, error) {
	switch mode {
	case "", "auto", "user":
	default:
		return nil, &helper.Error{Message: fmt.Sprintf("mode %s: sessions are a service's: there are auto and user", mode)}
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
