package learn

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"skillbox/audit"
	"skillbox/policy"
)

// Wish is something that runs turned to and that is left to a person: it stands in the policy commented out.
type Wish struct {
	Key   string `json:"key"`   // of the policy, such as network.egress
	Value string `json:"value"` // as the policy has it, in YAML
	Why   string `json:"why"`
	Run   string `json:"run"`    // id of the run that showed it first
	Seq   uint64 `json:"record"` // number of the record there
}

// document is a policy with what is to be said about its lines.
type document struct {
	policy *policy.Policy
	shown  map[string]bool   // keys that are written also where they are as by default
	notes  map[string]string // by key, or by key and item
	wishes []Wish
	head   []string // comments before everything, and
	foot   []string // after it
}

// line is one value, or one item of a list.
type line struct {
	key, text, note string
	item, out       bool // out is commented out
}

// maxNote is how long a comment may be and still stand behind its line.
const maxNote = 100

// keys are those that a learned policy may name, in the order of the reference, with their values.
var keys = []struct {
	key    string
	values func(*policy.Policy) []string // "" or none where there is nothing to say
	list   bool
}{
	{"version", func(*policy.Policy) []string { return []string{"1"} }, false},
	{"name", func(p *policy.Policy) []string { return []string{quote(p.Name)} }, false},
	{"enforcement", func(p *policy.Policy) []string { return []string{p.Enforcement} }, false},
	{"command", func(p *policy.Policy) []string { return quoted(p.Command) }, true},
	{"rootfs.base", func(p *policy.Policy) []string { return []string{quote(p.Rootfs.Base)} }, false},
	{"rootfs.bundle", func(p *policy.Policy) []string { return []string{p.Rootfs.Bundle} }, false},
	{"filesystem.read", func(p *policy.Policy) []string { return binds(p.Filesystem.Read) }, true},
	{"filesystem.write", func(p *policy.Policy) []string { return binds(p.Filesystem.Write) }, true},
	{"filesystem.tmp", func(p *policy.Policy) []string { return size(p.Filesystem.Tmp) }, false},
	{"filesystem.home", func(p *policy.Policy) []string { return size(p.Filesystem.Home) }, false},
	{"filesystem.output", func(p *policy.Policy) []string { return size(p.Filesystem.Output) }, false},
	{"env.pass", func(p *policy.Policy) []string { return quoted(p.Env.Pass) }, true},
	{"env.set", func(p *policy.Policy) []string { return []string{pairs(p.Env.Set)} }, false},
	{"env.secrets", func(p *policy.Policy) []string { return quoted(p.Env.Secrets) }, true},
	{"network.egress", func(p *policy.Policy) []string { return rules(p.Network.Egress) }, true},
	{"network.deny", func(p *policy.Policy) []string { return rules(p.Network.Deny) }, true},
	{"network.ingress", func(p *policy.Policy) []string { return ports(p.Network.Ingress) }, true},
	{"network.path", func(p *policy.Policy) []string { return []string{p.Network.Path} }, false},
	{"network.sinkhole", func(p *policy.Policy) []string { return []string{strconv.FormatBool(p.Network.Sinkhole)} }, false},
	{"network.limits.bytes", func(p *policy.Policy) []string { return size(p.Network.Limits.Bytes) }, false},
	{"network.limits.connections", func(p *policy.Policy) []string { return count(p.Network.Limits.Connections) }, false},
	{"network.limits.rate", func(p *policy.Policy) []string { return count(p.Network.Limits.Rate) }, false},
	{"resources.cpu", func(p *policy.Policy) []string { return []string{strconv.FormatFloat(p.Resources.CPU, 'f', -1, 64)} }, false},
	{"resources.memory", func(p *policy.Policy) []string { return size(p.Resources.Memory) }, false},
	{"resources.pids", func(p *policy.Policy) []string { return count(p.Resources.Pids) }, false},
	{"resources.open_files", func(p *policy.Policy) []string { return count(p.Resources.OpenFiles) }, false},
	{"resources.output", func(p *policy.Policy) []string { return size(p.Resources.Output) }, false},
	{"resources.output_overflow", func(p *policy.Policy) []string { return []string{p.Resources.OutputOverflow} }, false},
	{"resources.io_read", func(p *policy.Policy) []string { return asked(size(p.Resources.IORead), p.Resources.IORead) }, false},
	{"resources.io_write", func(p *policy.Policy) []string { return asked(size(p.Resources.IOWrite), p.Resources.IOWrite) }, false},
	{"resources.io_weight", func(p *policy.Policy) []string { return asked(count(p.Resources.IOWeight), p.Resources.IOWeight) }, false},
	{"resources.named", func(p *policy.Policy) []string { return []string{strconv.FormatBool(p.Resources.MustName)} }, false},
	{"devices.gpus", func(p *policy.Policy) []string { return []string{p.Devices.GPUs} }, false},
	{"timeout", func(p *policy.Policy) []string {
		return []string{strconv.FormatInt(p.Timeout.Milliseconds(), 10) + "ms"}
	}, false},
	{"syscalls.profile", func(p *policy.Policy) []string { return []string{p.Syscalls.Profile} }, false},
	{"syscalls.allow", func(p *policy.Policy) []string { return quoted(p.Syscalls.Allow) }, true},
	{"syscalls.deny", func(p *policy.Policy) []string { return quoted(p.Syscalls.Deny) }, true},
	{"audit.syscalls", func(p *policy.Policy) []string { return []string{p.Audit.Syscalls} }, false},
	{"audit.files", func(p *policy.Policy) []string { return []string{p.Audit.Files} }, false},
	{"warm.ready", func(p *policy.Policy) []string { return count(p.Warm.Ready) }, false},
	{"warm.preload", func(p *policy.Policy) []string { return []string{strconv.FormatBool(p.Warm.Preload)} }, false},
}

// lines are the policy's, and its wishes where they would stand.
func (d *document) lines() (all []line) {
	usual := policy.Default()
	for _, k := range keys {
		values := k.values(d.policy)
		if !k.list && !d.shown[k.key] && k.key != "version" && slices.Equal(values, k.values(usual)) {
			values = nil
		}
		for _, v := range values {
			if k.key == "timeout" {
				v = seconds(v)
			}
			note := d.notes[k.key]
			if k.list {
				note = d.notes[k.key+" "+v]
			}
			all = append(all, line{k.key, v, note, k.list, false})
		}
		for _, w := range d.wishes {
			if w.Key == k.key {
				all = append(all, line{k.key, w.Value, w.Why + " (" + cite{w.Run, w.Seq}.String() + ")", k.list, true})
			}
		}
	}
	return all
}

// String writes the policy as YAML.
func (d *document) String() string {
	var b strings.Builder
	for _, c := range d.head {
		b.WriteString("# " + printable(c) + "\n")
	}
	all := d.lines()
	opened := map[string]bool{}
	for _, l := range all {
		l.write(&b, opened, func(prefix string) bool {
			return slices.ContainsFunc(all, func(o line) bool { return !o.out && (o.key == prefix || strings.HasPrefix(o.key, prefix+".")) })
		})
	}
	for _, c := range d.foot {
		b.WriteString(strings.TrimSuffix("# "+printable(c), " ") + "\n")
	}
	return b.String()
}

// write writes a line below those that open its groups. active tells whether a group has a line that is not commented out.
func (l line) write(b *strings.Builder, opened map[string]bool, active func(string) bool) {
	parts := strings.Split(l.key, ".")
	depth := len(parts) - 1
	if l.item {
		depth++
	}
	for i := range depth {
		if prefix := strings.Join(parts[:i+1], "."); !opened[prefix] {
			opened[prefix] = true
			put(b, i, parts[i]+":", "", !active(prefix))
		}
	}
	text := "- " + l.text
	if !l.item {
		text = parts[depth] + ": " + l.text
	}
	put(b, depth, text, l.note, l.out)
}

func put(b *strings.Builder, depth int, text, note string, out bool) {
	indent := strings.Repeat("  ", depth)
	note = printable(note)
	if out {
		text = printable(text) // a wish has a stranger's words in it
	}
	if len(note) > maxNote {
		b.WriteString(indent + "# " + note + "\n")
		note = ""
	}
	b.WriteString(indent)
	if out {
		b.WriteString("# ")
	}
	b.WriteString(text)
	if note != "" {
		b.WriteString("  # " + note)
	}
	b.WriteByte('\n')
}

// printable keeps a stranger's text on one line, without what an editor would not show.
func printable(text string) string { return audit.Clean(text, 1024) }

var bare = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9/_.-]*$`)

// quote is a text as YAML takes it for text.
func quote(s string) string {
	switch strings.ToLower(s) {
	case "":
		return ""
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return strconv.Quote(s)
	}
	if bare.MatchString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}

func quoted(list []string) (all []string) {
	for _, s := range list {
		all = append(all, quote(s))
	}
	return all
}

func binds(list []policy.Bind) (all []string) {
	for _, b := range list {
		text := "{host: " + quote(b.Host)
		if b.Path != b.Host {
			text += ", path: " + quote(b.Path)
		}
		if b.Dangerous {
			text += ", dangerous: true"
		}
		all = append(all, text+"}")
	}
	return all
}

func rules(list []policy.Rule) (all []string) {
	for _, r := range list {
		all = append(all, r.String())
	}
	return all
}

func ports(list []policy.Ingress) (all []string) {
	for _, i := range list {
		all = append(all, i.String())
	}
	return all
}

func pairs(set map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		all = append(all, name+": "+strconv.QuoteToASCII(set[name]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func size(n int64) []string { return []string{policy.FormatSize(n)} }

// asked is a value that has no default: 0 is that nothing is asked for.
func asked(text []string, n int64) []string {
	if n == 0 {
		return nil
	}
	return text
}

func count(n int64) []string { return []string{strconv.FormatInt(n, 10)} }

// seconds writes whole seconds and minutes as a person would.
func seconds(ms string) string {
	n, err := strconv.ParseInt(strings.TrimSuffix(ms, "ms"), 10, 64)
	switch {
	case err != nil || n%1000 != 0:
		return ms
	case n%60_000 == 0:
		return fmt.Sprintf("%dm", n/60_000)
	}
	return fmt.Sprintf("%ds", n/1000)
}
