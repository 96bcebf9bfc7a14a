package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// show draws a bar while an image comes, where somebody looks; stop takes it away.
func (f *fetching) show() (stop func()) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err != nil || f.quiet {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				fmt.Fprint(os.Stderr, "\r\x1b[K")
				return
			case <-tick.C:
				fmt.Fprint(os.Stderr, "\r"+bar(f.Progress.Done.Load(), f.Progress.Total.Load(), f.Progress.Ready.Load(), f.Progress.Layers.Load())+"\x1b[K")
			}
		}
	}()
	return func() { close(done); <-ended }
}

const barWidth = 30

// bar is one line of at most 80 columns.
func bar(done, total, ready, layers int64) string {
	if total <= 0 {
		return "looking for the image"
	}
	full := max(0, min(barWidth, int(float64(done)/float64(total)*barWidth)))
	return fmt.Sprintf("[%s%s] %s of %s, %d of %d layers", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), size(done), size(total), ready, layers)
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
