package server

import "time"

// answer is what a step came to.
type answer[T any] struct {
	value T
	err   error
}

// begin runs a step beside its caller, who may give up on it: the answer is kept for whoever still wants it.
func begin[T any](step func() (T, error)) <-chan answer[T] {
	done := make(chan answer[T], 1)
	go func() {
		value, err := step()
		done <- answer[T]{value, err}
	}()
	return done
}

// unless gives up on a step that reads from the caller: a policy may be a FIFO that nobody writes.
func unless[T any](over <-chan struct{}, step func() (T, error)) (T, error) {
	select {
	case a := <-begin(step):
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
	done := begin(step)
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(prepareTime):
		go func() { late((<-done).value) }()
		var none T
		return none, refused("the sandbox was not ready within %v: does the bundle or a bind lie on a file system that hangs?", prepareTime)
	}
}
