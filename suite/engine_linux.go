package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skillbox/client"
	"skillbox/helper"
)

// engine runs a tool of a .skill-engine.toml by the program skillbox, which knows that format.
func (o *Options) engine(ctx context.Context, t *trial, call *client.Call) (*helper.Result, error) {
	if o.Command == "" || !knowsManifests(ctx, o.Command) {
		return nil, &skipped{"this build has no `skillbox exec --manifest`"}
	}
	args := []string{"exec", "--json", "--mode", orOneshot(o.Mode), "--manifest", filepath.Join(t.skill.dir, engineFile)}
	if call.Policy != "" {
		args = append(args, "--policy", call.Policy) // the most that a manifest may ask for
	}
	if call.Timeout > 0 {
		args = append(args, "--timeout", call.Timeout.String())
	}
	args = append(append(args, t.one.Tool, "--"), call.Words...)
	c := exec.CommandContext(ctx, o.Command, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	c.Dir = t.skill.dir
	c.Env = ownEnvironment(call.Env)
	c.Stdin = call.Stdin
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var r helper.Result
	if parseErr := json.Unmarshal(stdout.Bytes(), &r); parseErr != nil {
		return nil, errors.Join(fmt.Errorf("skillbox exec --manifest: %s", strings.TrimSpace(stderr.String())), parseErr, err)
	}
	return &r, nil
}

// ownEnvironment is what the program needs itself, and what the case gives: a manifest may name any variable of its environment.
func ownEnvironment(given map[string]string) (env []string) {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case strings.HasPrefix(name, "SKILLBOX_"), strings.HasPrefix(name, "XDG_"), name == "PATH", name == "HOME", name == "TMPDIR":
			env = append(env, variable)
		}
	}
	for name, value := range given {
		env = append(env, name+"="+value)
	}
	return env
}

func orOneshot(mode string) string {
	if mode == "" {
		return "oneshot"
	}
	return mode
}

// knowsManifests asks the program for its help: builds without skill-engine's manifests refuse the flag.
func knowsManifests(ctx context.Context, command string) bool {
	help, err := exec.CommandContext(ctx, command, "exec", "--help").Output()
	return err == nil && bytes.Contains(help, []byte("--manifest"))
}
