package server

import "time"

// unless gives up on a step that reads from the caller: a policy may be a FIFO that nobody writes.
func unless[T any](over <-chan struct{}, step func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := step()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-over:
		var none T
		return none, errCanceled
	}
}

// prepareTime bounds everything that happens before the skill's own time-out begins to count.
const prepareTime = 30 * time.Second

// inTime gives up on a step that hangs: a bundle or a bind may lie on a file system that never answers. What hangs ends with
// this process, or when the file system answers, late; a system call that waits for a dead server cannot be ended otherwise.
func inTime[T any](step func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := step()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(prepareTime):
		go func() { late((<-done).value) }()
		var none T
		return none, refused("the sandbox was not ready within %v: does the bundle or a bind lie on a file system that hangs?", prepareTime)
	}
}
