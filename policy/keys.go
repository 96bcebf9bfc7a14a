package policy

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// key is one key of a policy file: either a group of keys or a value.
type key struct {
	name  string
	doc   string // one sentence for docs/policy.md and for editors
	def   string // how the default is written; empty if there is none
	floor bool   // a ceiling sets the least, not the most
	wish  bool   // where the operator says nothing, the skill's own word holds, up to the ceiling's
	shape shape
	field func(any) any // the pointer to the value within *Policy, *Bind or *Rule
	keys  []key         // of a group
}

// in gives the field of a T as the table wants it.
func in[T any](field func(*T) any) func(any) any {
	return func(v any) any { return field(v.(*T)) }
}

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// keys is every key there is. The parser, the defaults, the printer, the JSON
// Schema and the reference in docs/policy.md all follow it.
var keys = []key{
	{name: "version", doc: "The version of this format.", def: "1", shape: version(), field: in(func(p *Policy) any { return &p.Version })},
	{name: "name", doc: "A label for people and logs.", shape: text("a name", label.String(), checkLabel), field: in(func(p *Policy) any { return &p.Name })},
	{name: "enforcement", doc: "What becomes of a rule this host cannot enforce: strict refuses the run, best-effort warns in the result.", def: "strict", shape: choice("strict", "best-effort"), field: in(func(p *Policy) any { return &p.Enforcement })},
	{name: "command", doc: "What to run; without it, what the bundle names.", shape: words(listing{what: "words", least: 1, most: 1024, repeats: true, item: object{"type": "string"}}, argument), field: in(func(p *Policy) any { return &p.Command })},
	{name: "rootfs", doc: "What the skill sees as /.", keys: []key{
		{name: "base", doc: "The system below the skill: the host's /usr, a directory, or an image from the store, an OCI layout or an archive of docker save.", def: "host", shape: text("host, dir:/path, image:REF, oci:/layout or docker-archive:/file", `^(host|(dir|oci|docker-archive):/.+|image:.+)$`, checkBase), field: in(func(p *Policy) any { return &p.Rootfs.Base })},
		{name: "bundle", doc: "Whether the skill may change its own files; a copy is thrown away after the run.", def: "read-only", shape: choice("read-only", "copy-on-write"), field: in(func(p *Policy) any { return &p.Rootfs.Bundle })},
	}},
	{name: "filesystem", doc: "Host paths made visible, and scratch space.", keys: []key{
		{name: "read", doc: "Host paths the skill may read.", def: "[]", shape: structs(binds, bindKeys, (*reader).bind), field: in(func(p *Policy) any { return &p.Filesystem.Read })},
		{name: "write", doc: "Host paths the skill may read and change.", def: "[]", shape: structs(binds, bindKeys, (*reader).bind), field: in(func(p *Policy) any { return &p.Filesystem.Write })},
		{name: "tmp", doc: "The size of /tmp.", def: "64Mi", shape: size(64*kib, 64*gib), field: in(func(p *Policy) any { return &p.Filesystem.Tmp })},
		{name: "home", doc: "The size of the home directory.", def: "64Mi", shape: size(64*kib, 64*gib), field: in(func(p *Policy) any { return &p.Filesystem.Home })},
		{name: "output", doc: "The size of /output, collected after the run.", def: "64Mi", shape: size(64*kib, 64*gib), field: in(func(p *Policy) any { return &p.Filesystem.Output })},
	}},
	{name: "env", doc: "The environment beside PATH, HOME, LANG, TZ and TMPDIR.", keys: []key{
		{name: "pass", doc: "Variables taken from the caller.", def: "[]", shape: words(variables, variable), field: in(func(p *Policy) any { return &p.Env.Pass })},
		{name: "set", doc: "Variables with these literal values.", def: "{}", shape: pairs("a mapping of variables to text", 256, CheckEnvName), field: in(func(p *Policy) any { return &p.Env.Set })},
		{name: "secrets", doc: "Values of the caller given as files in /run/secrets, never in the environment.", def: "[]", shape: words(variables, variable), field: in(func(p *Policy) any { return &p.Env.Secrets })},
	}},
	{name: "network", doc: "What the skill may reach; nothing without egress.", keys: []key{
		{name: "egress", doc: "What may be reached.", def: "[]", shape: structs(rules, egressKeys, (*reader).egress), field: in(func(p *Policy) any { return &p.Network.Egress })},
		{name: "deny", doc: "What may not be reached, whatever egress says.", def: "[]", shape: structs(rules, denyKeys, (*reader).deny), field: in(func(p *Policy) any { return &p.Network.Deny })},
		{name: "ingress", doc: "Ports of the skill's own listeners at which the caller may reach it (exec --publish).", def: "[]", shape: structs(ingresses, ingressKeys, (*reader).ingress), field: in(func(p *Policy) any { return &p.Network.Ingress })},
		{name: "path", doc: "How packets leave: through skillboxd (capture), or by a link of the box's own where rules name addresses (veth: root only). auto takes the link where it can be had and is needed.", def: "auto", shape: choice("capture", "veth", "auto"), field: in(func(p *Policy) any { return &p.Network.Path })},
		{name: "sinkhole", doc: "Whether names and connections end in skillboxd, which answers and records them and lets nothing out; egress and deny then only say what would have been allowed.", def: "false", floor: true, shape: boolean(), field: in(func(p *Policy) any { return &p.Network.Sinkhole })},
		{name: "limits", doc: "How much may pass.", keys: []key{
			{name: "bytes", doc: "Bytes sent and received in one run.", def: "10Mi", shape: size(kib, tib), field: in(func(p *Policy) any { return &p.Network.Limits.Bytes })},
			{name: "connections", doc: "Connections opened in one run.", def: "256", shape: integer(1, 1_000_000), field: in(func(p *Policy) any { return &p.Network.Limits.Connections })},
			{name: "rate", doc: "Connections opened in one second.", def: "50", shape: integer(1, 1_000_000), field: in(func(p *Policy) any { return &p.Network.Limits.Rate })},
		}},
	}},
	{name: "resources", doc: "Limits on the run.", keys: []key{
		{name: "cpu", doc: "Processor time per second.", def: "1", shape: cores(0.01, 1024), field: in(func(p *Policy) any { return &p.Resources.CPU })},
		{name: "memory", doc: "Memory of all processes together, scratch space included.", def: "256Mi", shape: size(4*mib, 16*tib), field: in(func(p *Policy) any { return &p.Resources.Memory })},
		{name: "pids", doc: "Processes and threads at a time.", def: "64", shape: integer(1, 4_194_304), field: in(func(p *Policy) any { return &p.Resources.Pids })},
		{name: "open_files", doc: "Open files of one process.", def: "256", shape: integer(16, 1_048_576), field: in(func(p *Policy) any { return &p.Resources.OpenFiles })},
		{name: "output", doc: "Bytes of stdout and stderr.", def: "10Mi", shape: size(kib, 64*gib), field: in(func(p *Policy) any { return &p.Resources.Output })},
		{name: "output_overflow", doc: "What happens above output: the run is ended, or what comes more is dropped and the skill goes on.", def: "kill", shape: choice("kill", "truncate"), field: in(func(p *Policy) any { return &p.Resources.OutputOverflow })},
		{name: "io_read", doc: "Bytes per second read from each disk; as fast as it is if left out.", shape: optional(rate(64*kib, tib), math.Inf(1)), field: in(func(p *Policy) any { return &p.Resources.IORead })},
		{name: "io_write", doc: "Bytes per second written to each disk; as fast as it is if left out.", shape: optional(rate(64*kib, tib), math.Inf(1)), field: in(func(p *Policy) any { return &p.Resources.IOWrite })},
		{name: "io_weight", doc: "Share of a busy disk, against others' 100; 100 if left out.", shape: optional(integer(1, 10_000), 100), field: in(func(p *Policy) any { return &p.Resources.IOWeight })},
		{name: "named", doc: "Whether a run is refused where policy or manifest leave cpu or memory to their defaults.", def: "false", floor: true, shape: boolean(), field: in(func(p *Policy) any { return &p.Resources.MustName })},
	}},
	{name: "devices", doc: "Devices of the host beside /dev/null and its like.", keys: []key{
		{name: "gpus", doc: "Whether the skill may use the host's GPUs: their device nodes, and with another base than the host's their driver's libraries.", def: "none", shape: choice("none", "all"), field: in(func(p *Policy) any { return &p.Devices.GPUs })},
	}},
	{name: "timeout", doc: "How long a run may take.", def: "30s", shape: duration(10*time.Millisecond, 168*time.Hour), field: in(func(p *Policy) any { return &p.Timeout })},
	{name: "syscalls", doc: "The seccomp filter.", keys: []key{
		{name: "profile", doc: "The set of system calls to start from.", def: "default", shape: choice("strict", "default", "debug"), field: in(func(p *Policy) any { return &p.Syscalls.Profile })},
		{name: "allow", doc: "Calls added to the profile.", def: "[]", shape: words(calls, checkSyscall), field: in(func(p *Policy) any { return &p.Syscalls.Allow })},
		{name: "deny", doc: "Calls taken from the profile.", def: "[]", shape: words(calls, checkSyscall), field: in(func(p *Policy) any { return &p.Syscalls.Deny })},
	}},
	{name: "audit", doc: "What is recorded of the run.", keys: []key{
		{name: "syscalls", doc: "Which system calls.", def: "denied", floor: true, shape: choice("none", "denied", "security", "all"), field: in(func(p *Policy) any { return &p.Audit.Syscalls })},
		{name: "files", doc: "Which file accesses.", def: "none", floor: true, shape: choice("none", "writes", "all"), field: in(func(p *Policy) any { return &p.Audit.Files })},
	}},
	{name: "warm", doc: "What a service keeps ready for the next calls of this kind; a run without one is the same.", keys: []key{
		{name: "ready", doc: "Boxes that wait at least, while there was a call in the last ten minutes; 0 leaves it to how often calls come.", def: "0", wish: true, shape: integer(0, 8), field: in(func(p *Policy) any { return &p.Warm.Ready })},
		{name: "preload", doc: "Whether python or node start, and import what the script imports, before the call.", def: "false", wish: true, shape: boolean(), field: in(func(p *Policy) any { return &p.Warm.Preload })},
	}},
}

var (
	binds     = listing{what: "binds", most: 64}
	rules     = listing{what: "rules", most: 256}
	entries   = listing{what: "entries", least: 1, most: 512, item: object{"type": "string"}}
	variables = listing{what: "variable names", most: 256, item: object{"type": "string", "pattern": envPattern}}
	calls     = listing{what: "system calls", most: 512, item: object{"type": "string", "pattern": syscall.String()}}
)

var bindKeys = []key{
	{name: "host", doc: "The path on the host.", shape: text("an absolute path", `^/.+$`, checkAbsolute), field: in(func(b *Bind) any { return &b.Host })},
	{name: "path", doc: "Where the skill sees it; the same path if left out.", shape: text("an absolute path", `^/.+$`, checkAbsolute), field: in(func(b *Bind) any { return &b.Path })},
	{name: "dangerous", doc: "Says that a sensitive host path is meant.", def: "false", shape: boolean(), field: in(func(b *Bind) any { return &b.Dangerous })},
}

var egressKeys = append(denyKeys[:len(denyKeys):len(denyKeys)],
	key{name: "unsafe_wildcard", doc: "Says that a rule this wide is meant.", def: "false", shape: boolean(), field: in(func(r *Rule) any { return &r.UnsafeWildcard })})

var denyKeys = []key{
	{name: "domains", doc: "Names, or *.name for every name below it.", shape: words(entries, pattern), field: in(func(r *Rule) any { return &r.Domains })},
	{name: "cidrs", doc: "Address ranges; a rule has either these or domains.", shape: list(entries, cidr, quotePrefix), field: in(func(r *Rule) any { return &r.CIDRs })},
	{name: "except", doc: "Address ranges taken out of this rule's cidrs.", shape: list(entries, cidr, quotePrefix), field: in(func(r *Rule) any { return &r.Except })},
	{name: "ports", doc: "443, \"8000-8100\" or \"53/udp\"; tcp unless it says udp.", shape: list(portEntries, port, quotePort), field: in(func(r *Rule) any { return &r.Ports })},
}

var portEntries = listing{what: "ports", least: 1, most: 512, item: object{
	"type": []string{"integer", "string"}, "minimum": 1, "maximum": 65535, "pattern": `^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?(/(tcp|udp))?$`,
}}

func argument(s string) (string, error) { return s, CheckText(s) }

func variable(s string) (string, error) { return s, CheckEnvName(s) }

func pattern(s string) (string, error) { return NormalizePattern(s) }

func cidr(n *yaml.Node) (netip.Prefix, error) {
	s, err := word(n)
	if err != nil {
		return netip.Prefix{}, err
	}
	return parseCIDR(s)
}

func port(n *yaml.Node) (Port, error) {
	s, err := number(n)
	if err != nil {
		return Port{}, err
	}
	return parsePort(s)
}

func quotePrefix(p netip.Prefix) string { return quote(p.String()) }

func quotePort(p Port) string {
	s := p.String()
	if _, err := strconv.Atoi(s); err == nil {
		return s
	}
	return quote(s)
}

// each calls visit for every value of the table with its dotted path, in order.
func each(visit func(path string, k key)) { walk("", keys, visit) }

func walk(at string, table []key, visit func(string, key)) {
	for _, k := range table {
		if k.keys != nil {
			walk(join(at, k.name), k.keys, visit)
			continue
		}
		visit(join(at, k.name), k)
	}
}

func find(table []key, name string) *key {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

func names(table []key) string {
	out := make([]string, len(table))
	for i, k := range table {
		out[i] = k.name
	}
	return strings.Join(out, ", ")
}
