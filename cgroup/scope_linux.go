package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// scopeTime is how long the user's systemd may take to make a scope.
const scopeTime = 5 * time.Second

// openScope asks the user's systemd for a scope of our own, with every controller that it has delegated (org.freedesktop.systemd1(5),
// StartTransientUnit). The scope, and all in it, goes when this process does: systemd removes empty scopes.
func openScope(uid int) (*Place, error) {
	const linger = "sudo loginctl enable-linger $USER, and log in again: the user then has a systemd that delegates groups; or run this in a system unit with Delegate=yes"
	socket := "/run/user/" + strconv.Itoa(uid) + "/bus"
	if _, err := os.Stat(socket); err != nil {
		return nil, unavailable(linger, "this login session may not make control groups, and no systemd of user %d could make one: %v", uid, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scopeTime)
	defer cancel()
	if err := startScope(ctx, socket, uid); err != nil {
		return nil, unavailable(linger, "the systemd of user %d made no scope: %v", uid, err)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	group, _, _ := ownGroup(string(text))
	p := &Place{Dir: filepath.Join(Root, group), Group: group}
	// Groups with processes can pass on no controllers: we step into one below.
	own := filepath.Join(p.Dir, "skillboxd")
	if err := os.Mkdir(own, 0o755); err != nil {
		return nil, makeError(own, err)
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0); err != nil {
		return nil, fmt.Errorf("cgroup: enter %s: %w", own, err)
	}
	if err := p.enable(p.Dir); err != nil {
		return nil, err
	}
	if p.dir, err = os.Open(p.Dir); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return p, nil
}

// startScope returns when this process is in its scope.
func startScope(ctx context.Context, socket string, uid int) error {
	conn, err := dbus.Dial("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer conn.Close()
	// In a user namespace our uid has another number than the one that the bus sees.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))}); err != nil {
		return err
	}
	if err := conn.Hello(); err != nil {
		return err
	}
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface("org.freedesktop.systemd1.Manager"), dbus.WithMatchMember("JobRemoved")); err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	type property struct {
		Name  string
		Value dbus.Variant
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	name := fmt.Sprintf("skillbox-%016x.scope", rand.Uint64())
	properties := []property{
		{"Description", dbus.MakeVariant("skillbox: one sandboxed call")},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"PIDs", dbus.MakeVariant([]uint32{0})}, // who asks: our number in systemd's namespace we do not know
	}
	var job dbus.ObjectPath
	err = conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").
		CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StartTransientUnit", 0, name, "fail", properties, []auxiliary{}).Store(&job)
	if err != nil {
		return err
	}
	for {
		select {
		case s, open := <-signals:
			if !open {
				return errors.New("the bus hung up")
			}
			if len(s.Body) < 4 || s.Body[1] != job {
				continue
			}
			if s.Body[3] != "done" {
				return fmt.Errorf("the job for %s ended as %v", name, s.Body[3])
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
