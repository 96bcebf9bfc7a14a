package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// scopeTime is how long the user's systemd may take to make a scope.
const scopeTime = 5 * time.Second

// openScope asks the user's systemd for a scope of our own (org.freedesktop.systemd1(5), StartTransientUnit): a login session lies
// outside what the user may manage, and no process can leave it by itself. From the scope the way to skillbox.slice is open. The
// scope goes when this process does: systemd removes empty ones.
func openScope(uid int) (*Place, error) {
	const linger = "sudo loginctl enable-linger $USER, and log in again: the user then has a systemd that delegates groups; or run this in a system unit with Delegate=yes"
	var fs unix.Statfs_t
	if err := unix.Statfs(Root, &fs); err == nil && fs.Flags&unix.ST_RDONLY != 0 {
		return nil, makeError(Root, unix.EROFS) // a container's: no systemd of the user's is in it
	}
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
	above, err := home(group, uid)
	if err != nil {
		return nil, err
	}
	if above == "" {
		return nil, unavailable("add Delegate=yes to user@.service", "the systemd of user %d may not manage its own control groups", uid)
	}
	return openSlice(above, group)
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
