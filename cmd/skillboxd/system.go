package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/helper/auditlog"
	"skillbox/helper/broker"
	"skillbox/helper/server"
	"skillbox/wire"
)

// system is root's service for every user of the machine: on the socket that systemd has passed, or on one that it makes in a directory of its
// own. It writes its log to stderr.
func system(args []string) error {
	flags := flag.NewFlagSet("skillboxd system", flag.ContinueOnError)
	dir := flags.String("dir", broker.Dir, "`directory` of the socket, where systemd passes none")
	auditDir := flags.String("audit", "/var/log/skillbox/audit", "`directory` of the audit log")
	config := flags.String("config", broker.Config, "`file` with who may use the service, and how much, and how the audit log is kept")
	idle := flags.Duration("idle", 10*time.Minute, "`time` without calls after which a user's worker leaves")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *idle <= 0 {
		return errors.New("usage: skillboxd system [--dir DIR] [--config FILE] [--audit DIR] [--idle TIME]")
	}
	if os.Geteuid() != 0 {
		return errors.New("skillboxd system must be root's: it serves every user of the machine")
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, os.Interrupt)
	defer stop()
	socket, err := broker.Listen(*dir)
	if err != nil {
		return err
	}
	said, err := auditlog.Read(*config, 0)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	records, err := auditlog.Open(*auditDir, said, log.Warn)
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	log.Info("started", "socket", socket.Path, "audit", *auditDir)
	err = (&broker.Broker{Listening: socket.File, Config: *config, Idle: *idle, Log: log, Audit: records}).Run(ctx)
	err = errors.Join(err, socket.Close(), records.Close())
	log.Info("left", "error", err)
	return err
}

// worker serves the user that the broker tells of, with that user's rights: callers come by descriptor 3, errands go by 4. It writes its log to
// stderr.
func worker(uid string) error {
	unix.CloseOnExec(3)
	errands, start, err := broker.NewErrands(wire.FromFD(4))
	if err != nil {
		return err
	}
	if uid != strconv.FormatUint(uint64(start.UID), 10) {
		return errors.New("started by the broker, not by hand")
	}
	build, err := helper.Build("/proc/self/exe")
	if err != nil {
		return err
	}
	s := &server.Service{
		Door: &broker.Door{From: os.NewFile(3, "door"), Errands: errands}, Records: errands, Build: build, Idle: start.Idle, Quota: &start.Quota, Version: version,
		Log: server.NewWorkerLog(start.UID),
	}
	if err := leanBoxes(); err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	host, err := enter(true)
	if err != nil {
		return errors.Join(err, s.Refuse(err))
	}
	host.Linkable, host.Linker = errands.Linkable, errands.Link
	if err := errands.Ready(); err != nil {
		return errors.Join(err, host.Close())
	}
	return errors.Join(s.Run(context.Background(), host), host.Close())
}
