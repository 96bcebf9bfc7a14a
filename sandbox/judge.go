package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"skillbox/audit"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/rootfs"
)

// judge says of what a skill tried in vain which line of the policy has to do with it, and what would allow it.
func (p *Plan) judge(d audit.Detail) audit.Detail {
	switch d := d.(type) {
	case audit.File:
		if d.Verdict != audit.Allowed {
			p.judgeFile(&d)
		}
		return d
	case audit.Exec:
		if d.Verdict != audit.Allowed {
			if d.Rule, d.Remedy = p.judgeExec(&d); d.Rule != "" {
				d.Layer = "filesystem"
			}
		}
		return d
	case audit.Connection:
		if d.Verdict == audit.Denied && p.Network.Path == "none" && d.Proto != "unix" {
			d.Rule = "network.egress is empty"
			d.Remedy = fmt.Sprintf("add {cidrs: [%s], ports: [%d]} to network.egress", hostRange(d.Address), d.Port)
		}
		return d
	}
	return d
}

// hostRange is an address as a range of one.
func hostRange(address string) string {
	if strings.Contains(address, ":") {
		return strconv.Quote(address + "/128") // for its colons
	}
	return address + "/32"
}

func (p *Plan) judgeFile(d *audit.File) {
	at := d.Path
	if d.Op == "rename" || d.Op == "link" {
		if d.To != "" && !p.writable(d.To) {
			at = d.To
		}
	}
	switch d.Error {
	case "EROFS", "EACCES", "EPERM", "EXDEV":
	case "ENOENT":
		p.judgeMissing(d)
		return
	default:
		return
	}
	switch {
	case d.Op == "open":
		d.Rule, d.Remedy = "the file's mode", "none by the policy: the file's owner must let others read it"
	case under(at, rootfs.SkillDir):
		d.Rule, d.Remedy = "rootfs.bundle "+p.bundle(), "rootfs: {bundle: copy-on-write}"
	case p.writable(at):
		d.Rule, d.Remedy = "the file's mode or owner", "none by the policy: the owner on the host must let others write it"
	case p.shown(at) != nil:
		bind := p.shown(at)
		item := fmt.Sprintf("{host: %s, path: %s}", quoted(bind.Source.Path), quoted(bind.Path))
		d.Rule = "filesystem.read: " + item
		d.Remedy = "move " + item + " from filesystem.read to filesystem.write"
	default:
		d.Rule = "filesystem.write has nothing that holds it"
		d.Remedy = wish("write", path.Dir(at))
	}
}

// judgeMissing: a path that is not in the box may be on the host.
func (p *Plan) judgeMissing(d *audit.File) {
	if !strings.HasPrefix(d.Path, "/") {
		return
	}
	if ours(d.Path) {
		return
	}
	key, at := "read", d.Path
	if d.Op != "open" {
		key, at = "write", path.Dir(d.Path)
	}
	d.Layer, d.Rule = "filesystem", fmt.Sprintf("filesystem.%s has nothing that holds it, should the host have it", key)
	d.Remedy = wish(key, at)
}

// wish is what shows a path of the host in the box. A skill that looks at a place which skillbox fills itself cannot be helped by that, but its
// author may: what people have at home is shown elsewhere.
func wish(key, host string) string {
	at, place, dangerous, why := policy.Shown(host)
	item := "host: " + quoted(host)
	switch {
	case at == "":
		return fmt.Sprintf("none: no policy may show %s: %s", host, why)
	case place == "/home" || place == "/root":
		item += ", path: " + quoted(at)
	case place != "":
		return fmt.Sprintf("none at this path: skillbox fills %s itself", place)
	}
	if dangerous {
		item += ", dangerous: true"
	}
	remedy := fmt.Sprintf("filesystem: {%s: [{%s}]}", key, item)
	if place != "" {
		return fmt.Sprintf("none at this path: skillbox fills %s itself; elsewhere: %s", place, remedy)
	}
	return remedy
}

// ours says of a path that nothing of the host could be missing there: programs look in many such places for what need not be.
func ours(at string) bool {
	return slices.ContainsFunc([]string{
		rootfs.SkillDir, rootfs.HomeDir, "/tmp", "/run", "/proc", "/sys", "/dev", "/input", "/output", "/usr", "/lib", "/lib64", "/bin", "/sbin",
	}, func(dir string) bool { return under(at, dir) })
}

// bundle is the policy's word.
func (p *Plan) bundle() string {
	if p.Tree.CopyOnWrite {
		return "copy-on-write"
	}
	return "read-only"
}

// shown is the bind that shows a path, or nil.
func (p *Plan) shown(at string) *rootfs.Bind {
	for i, b := range p.Tree.Binds {
		if under(at, b.Path) {
			return &p.Tree.Binds[i]
		}
	}
	return nil
}

// writable says whether a path lies where the box can be written.
func (p *Plan) writable(at string) bool {
	for _, w := range p.Tree.Writable() {
		if under(at, w) {
			return true
		}
	}
	return false
}

// quoted is a path as YAML takes it.
func quoted(at string) string {
	if strings.Trim(at, "/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" {
		return at
	}
	return strconv.Quote(at)
}

func under(at, dir string) bool {
	return at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")
}

func (p *Plan) judgeExec(d *audit.Exec) (rule, remedy string) {
	switch d.Error {
	case "ENOENT":
		if ours(d.Path) {
			return "", "" // a shell looks for a program in one directory after the other
		}
		return "filesystem.read has nothing that holds it, should the host have it", wish("read", d.Path)
	case "EACCES":
		return "the file's mode, or a place where nothing may be executed", "none by the policy: run it by its interpreter, or have the bundle carry it with an exec bit"
	}
	return "", ""
}

// denialOf is what the result tells of something that the skill did, with its number; the zero value where it was not refused. What is
// only missing is a refusal where the policy could have shown it.
func denialOf(d audit.Detail) (helper.Denial, int64) {
	switch d := d.(type) {
	case audit.File:
		if d.Verdict == audit.Denied || d.Remedy != "" && !under(d.Path, "/etc") {
			return helper.Denial{Kind: "file", What: d.Op + " " + d.Path + ": " + d.Error, Rule: d.Rule, Hint: d.Remedy, Recorded: true}, max(d.Count, 1)
		}
	case audit.Exec:
		if d.Verdict == audit.Denied || d.Remedy != "" {
			return helper.Denial{Kind: "exec", What: d.Path + ": " + d.Error, Rule: d.Rule, Hint: d.Remedy, Recorded: true}, max(d.Count, 1)
		}
	case audit.Connection:
		if d.Verdict == audit.Denied && d.Remedy != "" {
			return helper.Denial{
				Kind: "connection", What: fmt.Sprintf("%s %s port %d: %s", d.Proto, d.Address, d.Port, d.Error), Rule: d.Rule, Hint: d.Remedy, Recorded: true,
			}, max(d.Count, 1)
		}
	}
	return helper.Denial{}, 0
}
