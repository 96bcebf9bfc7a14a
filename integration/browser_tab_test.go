//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

// tab is one page.
type tab struct {
	t       *testing.T
	b       *browser
	session string
	target  string
}

// open shows a file, as wide as a device of that width.
func (b *browser) open(t *testing.T, file string, width int, media string) *tab {
	t.Helper()
	return b.openAs(t, file, width, media, true)
}

func (b *browser) openAs(t *testing.T, file string, width int, media string, scripts bool) *tab {
	t.Helper()
	var target struct{ TargetID string }
	b.call(t, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &tab{t, b, attached.SessionID, target.TargetID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.call(domain+".enable", nil, nil)
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": media}}}, nil)
	p.call("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	p.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !scripts}, nil)
	p.call("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	patiently(t, patience(20*time.Second), "the page does not load", func() bool {
		p.wait()
		return len(p.events("Page.loadEventFired")) > 0
	})
	return p
}

// wait is until something happens, or a moment.
func (p *tab) wait() {
	select {
	case <-p.b.news:
	case <-time.After(100 * time.Millisecond):
	}
}

func (p *tab) close() {
	p.t.Helper()
	p.b.call(p.t, "", "Target.closeTarget", map[string]any{"targetId": p.target}, nil)
}

func (p *tab) call(method string, params map[string]any, result any) {
	p.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	p.b.call(p.t, p.session, method, params, result)
}

func (p *tab) events(method string) (found []string) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for _, e := range p.b.events {
		if e.SessionID == p.session && e.Method == method {
			found = append(found, string(e.Params))
		}
	}
	return found
}

// forget leaves only events that are still to come.
func (p *tab) forget() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.b.events = nil
}

// eval is the value of a JavaScript expression, awaited.
func eval[T any](p *tab, expression string) (value T) {
	p.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true, "allowUnsafeEvalBlockedByCSP": false}, &got)
	if got.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	if err := json.Unmarshal(got.Result.Value, &value); err != nil {
		p.t.Fatalf("%s: %v: %s", expression, err, got.Result.Value)
	}
	return value
}

// click presses the mouse in the middle of an element, wherever that lies, once it is there.
func (p *tab) click(selector string) {
	p.t.Helper()
	patiently(p.t, patience(5*time.Second), "nothing is "+selector, func() bool { return eval[bool](p, fmt.Sprintf(`!!document.querySelector(%q)`, selector)) })
	at := eval[[2]float64](p, fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center"}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`, selector))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

var keys = map[string]struct {
	code int
	text string
}{"Tab": {9, ""}, "Enter": {13, "\r"}, " ": {32, " "}, "ArrowRight": {39, ""}, "ArrowDown": {40, ""}}

func (p *tab) press(key string) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		code := key
		if key == " " {
			code = "Space"
		}
		params := map[string]any{"type": kind, "key": key, "code": code, "windowsVirtualKeyCode": keys[key].code}
		if kind == "keyDown" && keys[key].text != "" {
			params["text"] = keys[key].text
		}
		p.call("Input.dispatchKeyEvent", params, nil)
	}
}

// write types a text into what has the focus.
func (p *tab) write(text string) {
	p.t.Helper()
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// shot saves a picture of the whole page.
func (p *tab) shot(file string) {
	p.t.Helper()
	var got struct{ Data []byte }
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &got)
	if err := os.WriteFile(file, got.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
