package page

import (
	"slices"
	"strconv"
	"strings"

	"skillbox/audit"
)

// process is a node of the tree of a run's processes. They stand in a list, each behind its parent.
type process struct {
	PIDs    string
	Depth   int // at most maxDepth; a skill can nest deeper than a page can show
	Command text
	Row     string // ID of the row that started it, if that is in the page
	Sums    string

	pid, parent   int
	last          int // of several that started no program, the last one's id
	first         key // its exec
	children      []*process
	files, others int
	refused       int64
}

// maxDepth is how far the page indents.
const maxDepth = 12

// tree collects processes from the records of one run. Ids are used again after a while: what started last is meant.
type tree struct {
	roots []*process
	byPID map[int]*process
	count int
}

func (t *tree) add(e *audit.Event, at key) {
	pid := processOf(e)
	if pid == 0 {
		return
	}
	p := t.byPID[pid]
	exec, isExec := e.Detail.(audit.Exec)
	started := isExec && exec.Verdict == audit.Allowed
	if p == nil || started && exec.Parent != 0 && p.parent != 0 && exec.Parent != p.parent {
		p = t.grow(pid, exec.Parent)
	}
	if p == nil {
		return // there are too many
	}
	if started {
		what, _ := describe(e)
		if p.Command.Head != "" {
			what = p.Command.Head + " → " + what // it became another program
		} else {
			p.first = at
		}
		p.Command = textOf(what)
	}
	if o := e.Outcome(); o != nil && o.Verdict == audit.Denied {
		p.refused += max(o.Count, 1)
	}
	switch e.Kind {
	case audit.FileKind:
		p.files++
	case audit.SyscallKind, audit.ConnKind:
		p.others++
	}
}

// grow hangs a process below its parent if that is known: always one that was there before, so that no circle can come about.
func (t *tree) grow(pid, parent int) *process {
	if t.count >= 10*maxProcesses {
		return nil
	}
	t.count++
	p := &process{pid: pid, last: pid, parent: parent}
	if above := t.byPID[parent]; above != nil && parent != pid {
		p.Depth = min(above.Depth+1, maxDepth)
		above.children = append(above.children, p)
	} else {
		t.roots = append(t.roots, p)
	}
	if t.byPID == nil {
		t.byPID = map[int]*process{}
	}
	t.byPID[pid] = p
	return p
}

func (t *tree) depth(pid int) int {
	if p := t.byPID[pid]; p != nil {
		return p.Depth
	}
	return 0
}

// list gives as many as the page shows, and how many there are besides. Processes that stand side by side and started no program, which
// is what workers of a pool look like, are one.
func (t *tree) list(rows map[key]*row) (list []*process, more int) {
	stack := slices.Clone(t.roots)
	slices.Reverse(stack)
	seen := 0
	for len(stack) > 0 && len(list) < maxProcesses {
		p := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, child := range slices.Backward(p.children) {
			stack = append(stack, child)
		}
		seen++
		if n := len(list); n > 0 && list[n-1].like(p) {
			list[n-1].absorb(p)
			continue
		}
		if r := rows[p.first]; r != nil {
			p.Row = r.ID
		}
		list = append(list, p)
	}
	for _, p := range list {
		p.PIDs, p.Sums = strconv.Itoa(p.pid), p.sums()
		if p.last != p.pid {
			p.PIDs += "–" + strconv.Itoa(p.last)
		}
	}
	return list, t.count - seen
}

func (p *process) like(next *process) bool {
	return p.Command.Head == "" && next.Command.Head == "" && p.Depth == next.Depth && len(p.children)+len(next.children) == 0 && p.last < next.pid
}

func (p *process) absorb(next *process) {
	p.last = next.pid
	p.files, p.others, p.refused = p.files+next.files, p.others+next.others, p.refused+next.refused
}

func (p *process) sums() string {
	var words []string
	for _, n := range []struct {
		n         int64
		one, many string
	}{{int64(p.files), "file event", "file events"}, {int64(p.others), "call", "calls"}, {p.refused, "refused", "refused"}} {
		if n.n > 0 {
			words = append(words, some(n.n, n.one, n.many))
		}
	}
	return strings.Join(words, " · ")
}
