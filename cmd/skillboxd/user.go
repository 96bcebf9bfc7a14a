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
// it was idle for so long. It writes its log to stderr, and serves its metrics where it is told.
func user(name, idle, metrics string) error {
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
	dir := os.NewFile(4, "directory of the service")
	s := &server.Service{
		Listening: os.NewFile(3, name), Dir: dir, Name: name, Build: build, Idle: wait, Log: server.NewLog(dir), Version: version, MetricsAt: metrics,
	}
	ctx, stop := untilStopped(s.Log)
	defer stop()
	err = errors.Join(awaitIDs(s.Dir), leanBoxes())
	if errors.Is(err, errOrphaned) {
		return errors.Join(err, s.SendAway())
	}
	if err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	host, err := enter(true)
	if err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	s.Log.Info("started", "version", version, "mode", host.Mode, "idle", wait.String(), "metrics", metrics, "swept", host.Swept)
	err = s.Run(ctx, host)
	s.Log.Info("left", "error", err)
	return errors.Join(err, host.Close())
}

// untilStopped ends with the first SIGTERM; the second ends this process, and as it is pid 1 with it every box, at once.
func untilStopped(log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, os.Interrupt)
	go func() {
		s := <-signals
		log.Info("stopping", "signal", s.String())
		cancel()
		s = <-signals
		log.Warn("stopping at once", "signal", s.String())
		os.Exit(125)
	}()
	return ctx, cancel
}

// idsTime is how long whoever started us has to give the new user namespace its ids.
const idsTime = 10 * time.Second

var errOrphaned = errors.New("whoever started this service has died, and gave its user namespace no ids")

// awaitIDs waits for them: clients can connect before. Who gives them holds the lock of dir meanwhile.
func awaitIDs(dir *os.File) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		orphaned := helper.Unlocked(dir)
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
		switch {
		case mapped == 2:
			return nil
		case orphaned:
			return errOrphaned
		case time.Since(began) > idsTime:
			return fmt.Errorf("the user namespace got no ids within %s", idsTime)
		}
	}
}
