package policy

import (
	"fmt"
	"slices"
	"strings"
)

const envPattern = `^[A-Za-z_][A-Za-z0-9_]*$`

var envName = lazily(envPattern)

// steering are variables that make a program load or run something before its
// own first line: ld.so(8), libc's own, and the shells' start-up files.
var steering = []string{
	"GLIBC_TUNABLES", "GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "MALLOC_TRACE", "NIS_PATH",
	"NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4",
}

// CheckEnvName refuses what cannot be a variable of the skill's environment:
// other than letters, digits and underscore, names that steer the dynamic
// loader, libc or a shell, and skillbox's own SKILLBOX_ names.
func CheckEnvName(name string) error {
	switch {
	case !envName.MatchString(name) || len(name) > 255:
		return bad("letters, digits and underscore, no digit first", "%s is not the name of a variable", show(name))
	case strings.HasPrefix(name, "LD_") || slices.Contains(steering, name):
		return bad("", "%s is refused: it makes programs load or run something else first", name)
	case strings.HasPrefix(name, "SKILLBOX_"):
		return bad("choose another name", "%s is refused: SKILLBOX_ names are set by skillbox", name)
	}
	return nil
}

// environment refuses a variable that comes from two places.
func (r *reader) environment(p *Policy) {
	from := map[string]string{}
	claim := func(name, source, field string) {
		if other, ok := from[name]; ok {
			r.failAt(r.positions[field], field, bad("keep one of the two", "%s is in %s already", name, other))
			return
		}
		from[name] = source
	}
	for i, name := range p.Env.Pass {
		claim(name, "env.pass", fmt.Sprintf("env.pass[%d]", i))
	}
	for _, name := range sortedKeys(p.Env.Set) {
		claim(name, "env.set", "env.set."+name)
	}
	for i, name := range p.Env.Secrets {
		claim(name, "env.secrets", fmt.Sprintf("env.secrets[%d]", i))
	}
}

// calls refuses a system call that is both allowed and denied.
func (r *reader) calls(p *Policy) {
	for i, name := range p.Syscalls.Deny {
		if slices.Contains(p.Syscalls.Allow, name) {
			field := fmt.Sprintf("syscalls.deny[%d]", i)
			r.failAt(r.positions[field], field, bad("keep one of the two", "%s is in syscalls.allow already", name))
		}
	}
}
