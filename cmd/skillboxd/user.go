package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/server"
)

// user serves its user's calls on the listening socket that is descriptor 3, and has this name in the directory that is descriptor 4, until
// it was idle for so long. It writes its log to stderr.
func user(name, idle string) error {
	wait, err := time.ParseDuration(idle)
	if err != nil {
		return err
	}
	build, err := helper.Build("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, fd := range []int{3, 4} {
		unix.CloseOnExec(fd)
	}
	s := &server.Service{
		Listening: os.NewFile(3, name), Dir: os.NewFile(4, "directory of the service"), Name: name, Build: build, Idle: wait,
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, os.Interrupt)
	defer stop()
	err = errors.Join(awaitIDs(), leanBoxes())
	if err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	host, err := enter(true)
	if err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	s.Log.Info("started", "mode", host.Mode, "idle", wait.String())
	err = s.Run(ctx, host)
	s.Log.Info("left", "error", err)
	return errors.Join(err, host.Close())
}

// idsTime is how long whoever started us has to give the new user namespace its ids.
const idsTime = 10 * time.Second

// awaitIDs waits for them: clients can connect before.
func awaitIDs() error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		mapped := 0
		for _, name := range []string{"uid_map", "gid_map"} {
			text, err := os.ReadFile("/proc/self/" + name)
			if err != nil {
				return err
			}
			if len(bytes.TrimSpace(text)) > 0 {
				mapped++
			}
		}
		if mapped == 2 {
			return nil
		}
		if time.Since(began) > idsTime {
			return fmt.Errorf("the user namespace got no ids within %s", idsTime)
		}
	}
}
