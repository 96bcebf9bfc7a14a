package main

import (
	"os"

	"golang.org/x/sys/unix"

	"skillbox/cmd/cli"
	"skillbox/helper"
)

// rawTerminal hands keys to the skill as they are typed, if --tty was given; the returned function puts the terminal back.
func (o *options) rawTerminal(r *helper.Request) (restore func()) {
	if !o.tty {
		return func() {}
	}
	r.Rows, r.Cols = terminalSize()
	r.Term = os.Getenv("TERM")
	old, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return func() {} // stdin is not a terminal: nothing to change
	}
	raw := *old
	// As cfmakeraw(3) does.
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
		return func() {}
	}
	return func() {
		if err := unix.IoctlSetTermios(0, unix.TCSETS, old); err != nil {
			cli.Complain(err)
		}
	}
}

func terminalSize() (rows, cols uint16) {
	size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
	if err != nil {
		return 24, 80
	}
	return size.Row, size.Col
}
