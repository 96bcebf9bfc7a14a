package learn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skillbox/bundle"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/scan"
)

// What the generous ceiling allows. It has no way out, no file of the host's and no dangerous system call.
const (
	generousMemory  = 1 << 30
	generousPids    = 256
	generousFiles   = 1024
	generousOutput  = 64 << 20
	generousScratch = 256 << 20
	generousTime    = time.Minute
)

// subject is the skill with everything that was said about it.
type subject struct {
	options  Options
	bundle   *bundle.Bundle
	current  *policy.Policy   // nil for none
	ceiling  *policy.Policy   // nil for the generous one
	vouched  []*policy.Policy // policies whose author has thought of what is in them
	base     *policy.Policy   // what the learned policy says whatever is seen: from the current one
	widest   *policy.Policy   // that the skill is run under
	attempts []scan.Attempt
	env      map[string]string // values of every name that the skill may be given
	notes    []string          // what a reader should know
}

func readSubject(o Options) (*subject, error) {
	root, err := os.Open(o.Bundle)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s := &subject{options: o, env: map[string]string{}}
	if s.bundle, err = bundle.Read(root); err != nil {
		return nil, err
	}
	if s.current, err = readPolicy(o.Current); err != nil {
		return nil, err
	}
	if s.ceiling, err = readPolicy(o.Ceiling); err != nil {
		return nil, err
	}
	for _, p := range []*policy.Policy{s.current, s.ceiling} {
		if p != nil {
			s.vouched = append(s.vouched, p)
		}
	}
	for _, p := range o.Params {
		if !json.Valid([]byte(p)) {
			return nil, &helper.Error{Message: fmt.Sprintf("the parameters %.200q are not JSON", p)}
		}
	}
	s.startFrom()
	if err := s.widen(); err != nil {
		return nil, err
	}
	if s.attempts, err = scan.Attempts(s.bundle, s.base.Command, o.Commands, o.Params); err != nil {
		return nil, &helper.Error{Message: err.Error(), Hint: "say what to run: --command 'python3 main.py'"}
	}
	return s, nil
}

// readPolicy returns nil for no file.
func readPolicy(path string) (*policy.Policy, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return policy.Parse(path, text)
}

// startFrom takes from the current policy what no run can show.
func (s *subject) startFrom() {
	s.base = policy.Default()
	if c := s.current; c != nil {
		s.base.Name, s.base.Command, s.base.Rootfs.Base, s.base.Env.Set = c.Name, c.Command, c.Rootfs.Base, c.Env.Set
		s.base.Network.Path, s.base.Network.Deny, s.base.Syscalls.Deny, s.base.Audit, s.base.Warm = c.Network.Path, c.Network.Deny, c.Syscalls.Deny, c.Audit, c.Warm
		s.base.Enforcement = c.Enforcement
	} else if _, err := policy.Parse("", []byte("version: 1\nname: "+quote(s.bundle.Name)+"\n")); err == nil {
		s.base.Name = s.bundle.Name
	}
	if s.ceiling != nil && s.ceiling.Named("rootfs.base") {
		s.base.Rootfs.Base = s.ceiling.Rootfs.Base
	}
}

// widen decides under what the skill is run at first.
func (s *subject) widen() error {
	w := *s.base
	w.Enforcement = "best-effort" // of limits: what this host can hold it holds
	w.Rootfs.Bundle = "copy-on-write"
	w.Filesystem.Tmp, w.Filesystem.Home, w.Filesystem.Output = generousScratch, generousScratch, generousScratch
	w.Resources.Memory, w.Resources.Pids, w.Resources.OpenFiles, w.Resources.Output = generousMemory, generousPids, generousFiles, generousOutput
	w.Timeout = generousTime
	if c := s.current; c != nil {
		w.Resources.CPU, w.Resources.Memory, w.Resources.Pids = c.Resources.CPU, max(w.Resources.Memory, c.Resources.Memory), max(w.Resources.Pids, c.Resources.Pids)
		w.Resources.OpenFiles, w.Resources.Output, w.Timeout = max(w.Resources.OpenFiles, c.Resources.OpenFiles), max(w.Resources.Output, c.Resources.Output), max(w.Timeout, c.Timeout)
		w.Network.Limits = c.Network.Limits
	}
	s.binds(&w)
	s.names(&w)
	w.Network.Sinkhole = len(s.options.Network) == 0
	for _, text := range s.options.Network {
		rule, err := destination(text)
		if err != nil {
			return err
		}
		w.Network.Egress = append(w.Network.Egress, rule)
	}
	granted, err := policy.Grant(s.ceiling, &w, nil)
	if err != nil {
		return err
	}
	s.widest = granted.Policy
	return nil
}

// binds shows the host's directories that somebody who answers for it has named.
func (s *subject) binds(w *policy.Policy) {
	has := func(b policy.Bind) bool {
		return slices.ContainsFunc(slices.Concat(w.Filesystem.Read, w.Filesystem.Write), func(o policy.Bind) bool { return within(o.Path, b.Path) || within(b.Path, o.Path) })
	}
	for _, p := range s.vouched {
		for _, b := range p.Filesystem.Write {
			if !has(b) {
				w.Filesystem.Write = append(w.Filesystem.Write, b)
			}
		}
		for _, b := range p.Filesystem.Read {
			if !has(b) {
				w.Filesystem.Read = append(w.Filesystem.Read, b)
			}
		}
	}
}

// names collects the variables and secrets that may matter, each with a value: the one given, or else one that is nobody's. Nothing of this
// process's own environment is given to the skill by itself.
func (s *subject) names(w *policy.Policy) {
	var declared *policy.Policy
	if s.bundle.Declared != nil {
		declared, _ = policy.ParseDeclared(s.bundle.DeclaredFile, s.bundle.Declared) // what is wrong with it, a run says
	}
	add := func(list *[]string, name string) {
		_, known := s.env[name]
		_, set := s.base.Env.Set[name]
		if known || set || policy.CheckEnvName(name) != nil {
			return
		}
		*list = append(*list, name)
		s.env[name] = cmp.Or(s.options.Env[name], "value-of-"+name)
	}
	for _, p := range append(slices.Clone(s.vouched), declared) {
		if p == nil {
			continue
		}
		for _, name := range p.Env.Secrets {
			add(&w.Env.Secrets, name)
		}
		for _, name := range p.Env.Pass {
			add(&w.Env.Pass, name)
		}
	}
	for _, name := range s.bundle.EnvVars {
		add(&w.Env.Pass, name)
	}
	for name := range s.options.Env {
		add(&w.Env.Pass, name)
	}
	if c := s.ceiling; c != nil {
		w.Env.Pass = permitted(c, "env.pass", c.Env.Pass, w.Env.Pass)
		w.Env.Secrets = permitted(c, "env.secrets", c.Env.Secrets, w.Env.Secrets)
	}
	slices.Sort(w.Env.Pass)
	slices.Sort(w.Env.Secrets)
}

// permitted are those names that the ceiling does not rule out.
func permitted(ceiling *policy.Policy, key string, most, names []string) []string {
	if !ceiling.Named(key) {
		return names
	}
	return slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(most, n) })
}

// destination reads NAME:PORT, NAME (port 443), ADDRESS:PORT or CIDR:PORT; PORT may say /udp.
func destination(text string) (policy.Rule, error) {
	host, port := text, "443"
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:i], text[i+1:]
	}
	host = strings.Trim(host, "[]")
	key, value := "domains", host
	if a, err := netip.ParseAddr(host); err == nil {
		key, value = "cidrs", netip.PrefixFrom(a, a.BitLen()).String()
	} else if _, err := netip.ParsePrefix(host); err == nil {
		key = "cidrs"
	}
	p, err := policy.Parse("--allow-network "+text, []byte("version: 1\nnetwork: {egress: [{"+key+": ["+strconv.Quote(value)+"], ports: ["+strconv.Quote(port)+"]}]}\n"))
	if err != nil {
		return policy.Rule{}, err
	}
	return p.Network.Egress[0], nil
}
