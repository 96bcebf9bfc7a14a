package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skillbox/client"
)

// pulse is how often a client hears that a call goes on, and pause the least time between two lines of its stderr.
const (
	pulse = time.Second
	pause = 50 * time.Millisecond
)

// linger is how long after a call its last line may take to come: a skillboxd that does not end does not close its end of the pipe either, and the
// client waits for an answer.
const linger = 2 * time.Second

// reporter tells a client how a call goes: progress, where it asked for that, and log messages, where it wants any.
type reporter struct {
	ctx   context.Context
	tool  *tool
	from  *sdk.ServerSession
	token any // nil where nobody asked
	lines bool

	mu       sync.Mutex
	began    time.Time
	waits    bool
	told     time.Time
	progress float64
	done     chan struct{}
	once     sync.Once
	ended    sync.WaitGroup
}

// reporter begins to tell. stop ends it; it must be called before the call is answered.
func (s *Server) reporter(ctx context.Context, t *tool, r *sdk.CallToolRequest) *reporter {
	p := &reporter{ctx: ctx, tool: t, from: r.Session, token: r.Params.GetProgressToken(), lines: s.options.Lines, began: time.Now(), waits: true, done: make(chan struct{})}
	if p.token != nil {
		p.ended.Go(p.beat)
	}
	return p
}

func (p *reporter) stop() {
	p.once.Do(func() { close(p.done) })
	p.ended.Wait()
}

// beat tells once in a while that the call goes on, and since when.
func (p *reporter) beat() {
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		word := "running"
		if p.waits {
			word = "waiting for others"
		}
		p.mu.Unlock()
		p.tell(fmt.Sprintf("%s for %.0f s", word, time.Since(p.began).Seconds()))
	}
}

// tell sends one notification of progress, whose figure must grow: it is the time that passed in seconds.
func (p *reporter) tell(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = max(time.Since(p.began).Seconds(), p.progress+1e-6)
	p.told = time.Now()
	// One that cannot be sent is a client that has gone, which ends the call.
	_ = p.from.NotifyProgress(p.ctx, &sdk.ProgressNotificationParams{ProgressToken: p.token, Progress: p.progress, Message: message})
}

// begin says that the call starts now, and where the client is to see them takes its lines; the returned function waits for the last and returns
// the end of them all.
func (p *reporter) begin(c *client.Call) (func() (string, error), error) {
	p.mu.Lock()
	p.waits = false
	p.mu.Unlock()
	if p.token == nil || !p.lines {
		return func() (string, error) { return "", nil }, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = write
	var kept []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		kept = p.follow(read)
	}()
	return func() (string, error) {
		err := write.Close()
		select {
		case <-done:
			err = errors.Join(err, read.Close())
		case <-time.After(linger):
			err = errors.Join(err, read.Close())
			<-done
		}
		return string(kept), err
	}, nil
}

// follow tells of each line, or where they come too fast of the newest, and keeps the end of what was read.
func (p *reporter) follow(from io.Reader) (kept []byte) {
	lines := bufio.NewReaderSize(from, 4096)
	for {
		line, err := lines.ReadSlice('\n') // a longer one comes in parts
		kept = append(kept, line...)
		if len(kept) > 2*maxTail {
			kept = append(kept[:0], kept[len(kept)-maxTail:]...)
		}
		p.mu.Lock()
		soon := time.Since(p.told) < pause
		p.mu.Unlock()
		if text := visible(string(line)); text != "" && !soon {
			p.tell(text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return kept
		}
	}
}

// visible is a line without what a terminal would obey.
func visible(line string) string {
	line = strings.ToValidUTF8(strings.TrimSpace(line), "\ufffd")
	return clipped(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, line), 500)
}

// end logs what a call came to.
func (p *reporter) end(r *client.Result) {
	p.stop()
	level := sdk.LoggingLevel("info")
	data := map[string]any{"id": r.ID, "verdict": r.Verdict, "exit_code": r.ExitCode, "duration_ms": r.DurationMS}
	if len(r.Denials) > 0 {
		level, data["denials"] = "warning", r.Denials
	}
	if len(r.Warnings) > 0 {
		data["warnings"] = r.Warnings
	}
	if r.Error != nil {
		level, data["error"] = "error", r.Error
	}
	// A client that has gone needs no log.
	_ = p.from.Log(p.ctx, &sdk.LoggingMessageParams{Level: level, Logger: p.tool.name, Data: data})
}
