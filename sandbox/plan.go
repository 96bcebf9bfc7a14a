// Package sandbox turns a granted policy, a bundle and a request into a box and runs one call in it: Compile decides (pure, its
// Plan can be printed), Prepare acts, Box.Run is the call. It is the only place where the handles of the kernel packages meet.
package sandbox

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"skillbox/bundle"
	"skillbox/cgroup"
	"skillbox/image"
	"skillbox/policy"
	"skillbox/rootfs"
	"skillbox/seccomp"
)

// Plan is everything that a ready box depends on, and nothing of a single call: two calls with equal plans could be served by
// two boxes prepared alike.
type Plan struct {
	Mode     string            `json:"mode"`
	IDs      IDs               `json:"ids"`
	Tree     rootfs.Spec       `json:"tree"`
	OCI      *specs.Spec       `json:"oci"` // root path and network namespace path are filled in by Prepare
	Seccomp  seccomp.Spec      `json:"seccomp"`
	Env      map[string]string `json:"env"`     // literal values
	Pass     []string          `json:"pass"`    // names whose values come with the call
	Secrets  []string          `json:"secrets"` // names whose values come with the call, as files
	Limits   Limits            `json:"limits"`
	Group    cgroup.Limits     `json:"group"`   // what the cgroup holds
	Watched  Watched           `json:"watched"` // what it does not, and the watchdog does
	Network  Network           `json:"network"`
	Layers   map[string]string `json:"layers"` // what holds the skill, and by which means
	Warnings []string          `json:"warnings"`
}

// Limits are enforced by skillboxd while the skill runs.
type Limits struct {
	Timeout     time.Duration `json:"timeout"`
	Grace       time.Duration `json:"grace"` // between SIGTERM and SIGKILL
	MemoryBytes int64         `json:"memory_bytes"`
	OutputBytes int64         `json:"output_bytes"` // stdout and stderr together
	Truncate    bool          `json:"truncate"`     // what is above OutputBytes is dropped, and the skill goes on
	FilesBytes  int64         `json:"files_bytes"`  // what is taken from /output
	FilesCount  int           `json:"files_count"`
}

const (
	grace         = 2 * time.Second
	resultBytes   = 10 << 20
	maxOutputFile = 1000
)

// Watched is what the watchdog holds; zero is what it leaves to the cgroup.
type Watched struct {
	Memory int64         `json:"memory_bytes"`
	Pids   int64         `json:"pids"`
	CPU    time.Duration `json:"cpu"` // of all processes in the whole run: what the limit would let them have within the time-out
}

// Sources are the host paths of a plan, opened and identified by the caller: the bundle, and each bind of the policy in order,
// reads first.
type Sources struct {
	Bundle   Source
	BundleAt string // where the bundle appears besides rootfs.SkillDir, "" for nowhere
	Binds    []Source
	Image    *image.Image // of a policy's base that is one
	Root     Source       // its tree
	GPU      *rootfs.GPU  // where the policy grants GPUs
	// Disks that hold them, and paths that lie on none, where the policy limits disks.
	Disks    []cgroup.Disk
	Diskless []string
}

// Source is an identified host path with the owner that it has on disk.
type Source struct {
	rootfs.Source
	UID, GID int
}

// Refusal is something that the policy asks for and this host or version cannot enforce.
type Refusal struct {
	Field, Message, Hint string
	Position             policy.Position
}

func (r *Refusal) Error() string { return r.Field + ": " + r.Message }

// Compile decides. The policy is the effective one; it fails with *Refusal for what cannot be enforced, unless the policy says
// best-effort, where that becomes a warning.
func Compile(h *Host, p *policy.Policy, b *bundle.Bundle, s Sources) (*Plan, error) {
	plan := &Plan{
		Mode: h.Mode,
		IDs:  h.IDs,
		Seccomp: seccomp.Spec{
			Profile: p.Syscalls.Profile, Allow: p.Syscalls.Allow, Deny: p.Syscalls.Deny, Report: p.Audit.Syscalls != "none",
			Calls: watchedLevel(p.Audit.Syscalls), Files: watchedLevel(p.Audit.Files),
		},
		Env:     p.Env.Set,
		Pass:    p.Env.Pass,
		Secrets: p.Env.Secrets,
		Limits: Limits{
			Timeout: p.Timeout, Grace: grace, MemoryBytes: p.Resources.Memory,
			OutputBytes: p.Resources.Output, Truncate: p.Resources.OutputOverflow == "truncate",
			FilesBytes: p.Filesystem.Output, FilesCount: maxOutputFile,
		},
		Layers:   map[string]string{},
		Warnings: slices.Clone(b.Warnings),
	}
	if err := plan.refuse(h, p); err != nil {
		return nil, err
	}
	if err := plan.limit(h, p, s); err != nil {
		return nil, err
	}
	if err := plan.connect(h, p); err != nil {
		return nil, err
	}
	if err := seccomp.Validate(plan.Seccomp); err != nil {
		return nil, &Refusal{Field: "syscalls", Message: err.Error(), Position: p.Position("syscalls")}
	}
	plan.Tree = tree(h, p, b, s)
	plan.OCI = oci(h, p, plan.Watched)
	var err error
	if plan.Tree.Hostname, err = plan.name(h, p); err != nil {
		return nil, err
	}
	plan.configure(s.Image)
	plan.describe(p)
	return plan, nil
}

// unwatched are the highest levels that every host has.
var unwatched = map[string]string{"audit.syscalls": "denied", "audit.files": "none"}

// watchedLevel is a level of the policy's as package seccomp knows it: "" where no call that is allowed is watched.
func watchedLevel(level string) string {
	if level == "none" || level == "denied" {
		return ""
	}
	return level
}

// refuse lists what later versions enforce.
func (plan *Plan) refuse(h *Host, p *policy.Policy) error {
	at := func(field, message, hint string) error {
		return &Refusal{Field: field, Message: message, Hint: hint, Position: p.Position(field)}
	}
	for field, level := range map[string]string{"audit.syscalls": watchedLevel(p.Audit.Syscalls), "audit.files": watchedLevel(p.Audit.Files)} {
		if level != "" && h.Unwatchable != "" {
			return at(field, fmt.Sprintf("level %s has to look at the skill's calls and make them in its place, which cannot be done here: %s", level, h.Unwatchable), "use "+unwatched[field])
		}
	}
	if hard, ok := h.HardLimits["RLIMIT_NOFILE"]; ok && p.Named("resources.open_files") && uint64(p.Resources.OpenFiles) > hard {
		return at("resources.open_files", fmt.Sprintf("%d is above this session's hard limit of %d", p.Resources.OpenFiles, hard), "raise it with ulimit -Hn, or ask for less")
	}
	if hard, ok := h.HardLimits["RLIMIT_CORE"]; ok && hard == 0 && h.CoreHandler {
		plan.Warnings = append(plan.Warnings, "this session's hard limit for core files is 0, which a piped kernel.core_pattern ignores: a skill that crashes starts "+
			"the host's handler; raise the limit to 1 (ulimit -Hc 1)")
	}
	return nil
}

func (ids IDs) owner() rootfs.Owner {
	return rootfs.Owner{SkillUID: ids.SkillUID, SkillGID: ids.SkillGID, RootUID: ids.RootUID, RootGID: ids.RootGID}
}

// withIDs is the same plan for a box of other ids.
func (plan *Plan) withIDs(ids IDs) *Plan {
	other, spec, linux := *plan, *plan.OCI, *plan.OCI.Linux
	linux.UIDMappings, linux.GIDMappings = ids.mappings()
	spec.Linux = &linux
	other.IDs, other.Tree.Owner, other.OCI = ids, ids.owner(), &spec
	return &other
}

func tree(h *Host, p *policy.Policy, b *bundle.Bundle, s Sources) rootfs.Spec {
	idmap := h.Mode == "root"
	t := rootfs.Spec{
		Base:        p.Rootfs.Base,
		Owner:       h.IDs.owner(),
		BoxUID:      h.IDs.BoxUID,
		BoxGID:      h.IDs.BoxGID,
		Bundle:      rootfs.Bind{Source: s.Bundle.Source, Path: rootfs.SkillDir, IDMap: idmap, MapUID: s.Bundle.UID, MapGID: s.Bundle.GID},
		BundleAt:    s.BundleAt,
		CopyOnWrite: p.Rootfs.Bundle == "copy-on-write",
		TmpSize:     p.Filesystem.Tmp,
		HomeSize:    p.Filesystem.Home,
		OutputSize:  p.Filesystem.Output,
		ResultSize:  resultBytes,
		Programs:    bundle.Programs(),
		Init:        h.Init,
		InitPath:    initPath,
		GPU:         s.GPU,
	}
	for name, content := range b.ShimFiles() {
		if t.Files == nil {
			t.Files = map[string][]byte{}
		}
		t.Files[rootfs.ShimDir+"/"+name] = content
	}
	if s.Image != nil {
		t.Image = &rootfs.Image{Digest: s.Image.Digest, ID: s.Image.ID, Source: s.Root.Source}
	}
	for i, bind := range append(append([]policy.Bind{}, p.Filesystem.Read...), p.Filesystem.Write...) {
		t.Binds = append(t.Binds, rootfs.Bind{
			Source: s.Binds[i].Source, Path: bind.Path, Writable: i >= len(p.Filesystem.Read),
			IDMap: idmap, MapUID: s.Binds[i].UID, MapGID: s.Binds[i].GID,
		})
	}
	return t
}

// describe says in the result's words what holds the skill.
func (plan *Plan) describe(p *policy.Policy) {
	plan.Layers["namespaces"] = "user mount pid net ipc uts cgroup"
	plan.Layers["user"] = fmt.Sprintf("uid %d of its own user namespace", plan.IDs.BoxUID)
	switch {
	case plan.IDs.Single:
		plan.Layers["user"] += ", the caller's only id"
		if plan.IDs.Groups > 0 {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("the skill keeps the caller's %d supplementary groups: without sub-ids they cannot be dropped; "+
				"`skillbox doctor` says how to get sub-ids", plan.IDs.Groups))
		}
	case plan.Mode == "rootless":
		plan.Layers["user"] += ", the caller's id; uid 0 is a sub-id"
	default:
		plan.Layers["user"] += ", an id that no other box has"
	}
	plan.Layers["capabilities"] = "none, no_new_privs"
	plan.Layers["root"] = "read-only, base " + p.Rootfs.Base
	if i := plan.Tree.Image; i != nil {
		plan.Layers["root"] += " (" + i.Digest + ")"
	}
	plan.Layers["bundle"] = p.Rootfs.Bundle
	plan.Layers["seccomp"] = p.Syscalls.Profile
	if g := plan.Tree.GPU; g != nil {
		plan.Layers["devices"] = fmt.Sprintf("%d nodes of GPUs, and what their driver makes of calls to it", len(g.Nodes))
	}
	plan.Layers["network"] = plan.Network.layer()
}

// rlimits hold what no cgroup does. RLIMIT_CORE is 1, not 0: a piped core_pattern handler of the host ignores 0 (core(5)).
// RLIMIT_AS is never set: node and java reserve far more than they use. Nor is RLIMIT_FSIZE: scratch file systems have a size, a bind
// has none that we know of, and of memfds many small ones do as well as a large one; but it would kill whoever makes a file with holes.
func rlimits(h *Host, p *policy.Policy, w Watched) []specs.POSIXRlimit {
	both := func(kind string, n int64) specs.POSIXRlimit {
		limit := uint64(n)
		if hard, ok := h.HardLimits[kind]; ok {
			limit = min(limit, hard) // raising it would take CAP_SYS_RESOURCE on the machine; lower is safe
		}
		return specs.POSIXRlimit{Type: kind, Hard: limit, Soft: limit}
	}
	limits := []specs.POSIXRlimit{
		both("RLIMIT_CORE", 1),
		both("RLIMIT_NOFILE", p.Resources.OpenFiles),
		both("RLIMIT_NPROC", p.Resources.Pids+initThreads),
		// The kernel counts these two for the creator of the user namespace as well (ucounts, Linux 5.14): what boxes take, the host's user
		// lacks. Nothing that skills are made of needs message queues; programs that hide a key lock a few pages.
		both("RLIMIT_MEMLOCK", 64<<10),
		both("RLIMIT_MSGQUEUE", 0),
		both("RLIMIT_SIGPENDING", 1024),
	}
	// Where the watchdog holds a limit, these catch what is faster. A cgroup needs no help, and programs may map more than they touch.
	if w.Memory > 0 {
		limits = append(limits, both("RLIMIT_DATA", w.Memory*4))
	}
	if w.CPU > 0 {
		limits = append(limits, both("RLIMIT_CPU", int64(math.Ceil(p.Timeout.Seconds()*max(1, p.Resources.CPU)))+1))
	}
	return limits
}
