package server

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"skillbox/bundle"
	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/policy"
	"skillbox/rootfs"
	"skillbox/sandbox"
)

const maxPolicyBytes = 256 << 10

// decision is everything that was judged before anything is made.
type decision struct {
	bundle  *bundle.Bundle
	granted *policy.Granted
	sources sandbox.Sources
	plan    *sandbox.Plan
	argv    []string
	policy  helper.Named
	id      string // see key
}

// said is what the operator and the administrator say, as they wrote it; nil is nothing.
type said struct {
	operator []byte
	ceilings []ceiling
}

func hear(h *sandbox.Host, r *helper.Request, f *files, groups []uint32) (s *said, err error) {
	s = &said{}
	if s.operator, err = readOperator(r, f); err == nil {
		s.ceilings, err = readCeilings(h.Caller(), groups)
	}
	return s, err
}

// asks says that the call needs values that only the client has.
func (d *decision) asks() bool { return len(d.plan.Pass)+len(d.plan.Secrets) > 0 }

// key names everything that a box depends on, so that calls with equal keys can be served by boxes prepared alike.
func (d *decision) key() (string, error) {
	if d.id != "" {
		return d.id, nil
	}
	plan, err := json.Marshal(d.plan)
	if err != nil {
		return "", fmt.Errorf("server: plan: %w", err)
	}
	sum := sha256.Sum256(append(plan, d.policy.Digest...))
	d.id = string(sum[:])
	return d.id, nil
}

// decide reads what the three sources say and lets the pure parts judge.
func decide(h *sandbox.Host, r *helper.Request, f *files, groups []uint32) (*decision, error) {
	s, err := hear(h, r, f, groups)
	if err != nil {
		return nil, err
	}
	return judge(h, r, f, s)
}

// judge reads the bundle, which is the third to say something.
func judge(h *sandbox.Host, r *helper.Request, f *files, s *said) (*decision, error) {
	operator, err := parseOperator(r, s.operator)
	if err != nil {
		return nil, err
	}
	ceilings, err := parseCeilings(s.ceilings)
	if err != nil {
		return nil, err
	}
	d := &decision{}
	if d.bundle, err = inTime(func() (*bundle.Bundle, error) { return bundle.Read(f.bundle) }, func(*bundle.Bundle) {}); err != nil {
		return nil, err
	}
	var declared *policy.Policy
	if d.bundle.Declared != nil {
		if declared, err = policy.ParseDeclared(d.bundle.DeclaredFile, d.bundle.Declared); err != nil {
			return nil, err
		}
	}
	if r.TrustBundlePolicy && declared != nil && f.policy == nil {
		operator, declared = declared, nil
	}
	if err := applyFlags(operator, r); err != nil {
		return nil, err
	}
	if d.granted, err = policy.GrantAll(ceilings, operator, declared); err != nil {
		return nil, err
	}
	effective := d.granted.Policy
	d.policy = helper.Named{Name: effective.Name, Digest: effective.Digest()}
	if d.sources, err = identify(h, f.bundle, effective); err != nil {
		return nil, err
	}
	if d.plan, err = sandbox.Compile(h, effective, d.bundle, d.sources); err != nil {
		return nil, err
	}
	for _, note := range append(append([]policy.Note{}, d.granted.Clamped...), d.granted.Requested...) {
		d.plan.Warnings = append(d.plan.Warnings, note.String())
	}
	if r.Op != helper.OpSessionStart { // whose calls each say what to run
		d.argv, err = command(r, effective, d.bundle)
	}
	return d, err
}

func operatorPolicy(r *helper.Request, f *files) (*policy.Policy, error) {
	text, err := readOperator(r, f)
	if err != nil {
		return nil, err
	}
	return parseOperator(r, text)
}

func parseOperator(r *helper.Request, text []byte) (*policy.Policy, error) {
	if text == nil {
		return policy.Default(), nil
	}
	return policy.Parse(r.PolicyName, text)
}

func readOperator(r *helper.Request, f *files) ([]byte, error) {
	if f.policy == nil {
		return nil, nil
	}
	info, err := f.policy.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.PolicyName, err)
	}
	// A file without a name (a memfd has mode 0777) is only its holder's to write.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 && st.Nlink > 0 {
		return nil, &helper.Error{Message: "everybody may write this policy, so it is nobody's word", File: r.PolicyName, Hint: "chmod o-w " + r.PolicyName}
	}
	data, err := readAll(f.policy, maxPolicyBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.PolicyName, err)
	}
	return data, nil
}

// applyFlags writes the command line into the operator's policy.
func applyFlags(p *policy.Policy, r *helper.Request) error {
	if r.TimeoutMS > 0 {
		if err := p.Assign("timeout", "--timeout", fmt.Sprintf("%dms", r.TimeoutMS)); err != nil {
			return err
		}
	}
	for name, value := range r.EnvSet {
		if err := policy.CheckEnvName(name); err != nil {
			return refused("--env %s: %v", name, err)
		}
		if p.Env.Set == nil {
			p.Env.Set = map[string]string{}
		}
		p.Env.Set[name] = value
		p.Set("env.set", "--env")
		p.Set("env.set."+name, "--env")
	}
	for _, name := range r.EnvPass {
		if err := policy.CheckEnvName(name); err != nil {
			return refused("--env %s: %v", name, err)
		}
		p.Env.Pass = append(p.Env.Pass, name)
		p.Set("env.pass", "--env")
		p.Set(fmt.Sprintf("env.pass[%d]", len(p.Env.Pass)-1), "--env")
	}
	return nil
}

// identify opens the plan's host paths once and remembers which inodes they are.
func identify(h *sandbox.Host, dir *os.File, p *policy.Policy) (sandbox.Sources, error) {
	var s sandbox.Sources
	var err error
	if s.Bundle, err = source(int(dir.Fd())); err != nil {
		return s, err
	}
	lists := map[string][]policy.Bind{"filesystem.read": p.Filesystem.Read, "filesystem.write": p.Filesystem.Write}
	seen := map[[2]uint64]string{}
	for _, field := range []string{"filesystem.read", "filesystem.write"} {
		for i, bind := range lists[field] {
			at := fmt.Sprintf("%s[%d].host", field, i)
			found, err := identifyBind(bind.Host)
			if err != nil {
				return s, &sandbox.Refusal{
					Field: at, Message: fmt.Sprintf("%s: %v", bind.Host, err), Position: p.Position(at),
					Hint: "name an existing path without symbolic links in it",
				}
			}
			if why := handsOut(field, bind); why != "" {
				return s, &sandbox.Refusal{
					Field: at, Message: why + ", which programs outside obey", Position: p.Position(at),
					Hint: "give the skill a directory of its own; if it is meant, add dangerous: true to the bind",
				}
			}
			if other, ok := seen[[2]uint64{found.Dev, found.Ino}]; ok && field == "filesystem.write" {
				return s, &sandbox.Refusal{Field: at, Message: fmt.Sprintf("%s is the same file or directory as %s", bind.Host, other), Position: p.Position(at)}
			}
			seen[[2]uint64{found.Dev, found.Ino}] = bind.Host
			s.Binds = append(s.Binds, found)
		}
	}
	if p.Resources.IORead > 0 || p.Resources.IOWrite > 0 {
		err = findDisks(&s)
	}
	return s, err
}

// inMemory says of a path that reading it reads no disk.
func inMemory(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

// findDisks notes the disks behind everything of the host's that the skill can read: its files, and the system below it.
func findDisks(s *sandbox.Sources) error {
	all := append([]sandbox.Source{s.Bundle}, s.Binds...)
	var st unix.Stat_t
	if err := unix.Stat("/usr", &st); err != nil {
		return fmt.Errorf("server: /usr: %w", err)
	}
	all = append(all, sandbox.Source{Source: rootfs.Source{Path: "/usr", Dev: st.Dev}})
	for _, source := range all {
		disk, ok, err := cgroup.DiskOf(source.Dev)
		switch {
		case err != nil:
			return err
		case !ok && inMemory(source.Path):
		case !ok:
			s.Diskless = append(s.Diskless, source.Path)
		case !slices.Contains(s.Disks, disk):
			s.Disks = append(s.Disks, disk)
		}
	}
	return nil
}

func identifyBind(path string) (sandbox.Source, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return sandbox.Source{}, err
	}
	defer unix.Close(fd)
	return source(fd)
}

func source(fd int) (sandbox.Source, error) {
	found, err := rootfs.SourceOf(fd)
	if err != nil {
		return sandbox.Source{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return sandbox.Source{}, err
	}
	return sandbox.Source{Source: found, UID: int(st.Uid), GID: int(st.Gid)}, nil
}

// command puts the argv together: the entry, the policy's command or the bundle's own, with the words appended; else the words.
func command(r *helper.Request, p *policy.Policy, b *bundle.Bundle) ([]string, error) {
	var base []string
	var err error
	switch {
	case r.Entry != "":
		if base, err = b.WithEntry(r.Entry); err != nil {
			return nil, err
		}
	case len(p.Command) > 0:
		base = p.Command
	default:
		base = b.Command
	}
	argv := append(append([]string{}, base...), r.Words...)
	if len(argv) == 0 {
		e := &helper.Error{Message: "nothing says what to run", Hint: "give a command after --, --entry, or command: in the policy"}
		if len(b.Scripts) > 0 {
			e.Hint = fmt.Sprintf("choose one of the bundle's scripts with --entry: %v", b.Scripts)
		}
		return nil, e
	}
	return argv, nil
}
