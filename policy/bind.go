package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// checkAbsolute refuses a path that is not absolute, clean and literal.
func checkAbsolute(p string) error {
	if err := literal(p); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(p, "/"):
		return bad("begin it with /", "%s is not an absolute path", show(p))
	case len(p) > 4095:
		return bad("", "the path is longer than 4095 bytes")
	case path.Clean(p) != p:
		return bad("write "+show(path.Clean(p)), "%s is not the shortest form of the path", show(p))
	}
	return nil
}

// occupied are the places of the box that skillbox itself fills. A bind at,
// above or below one would hide or widen what is there.
var occupied = []string{
	"/proc", "/sys", "/dev", "/run", "/var/run", "/var/tmp", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
	"/libx32", "/boot", "/skill", "/input", "/output", "/tmp", "/home", "/root",
}

// forbidden are host paths no bind may show: with them the box is not one.
var forbidden = map[string]string{
	"/proc":               "the host's processes",
	"/sys":                "the host's kernel settings",
	"/dev":                "the host's devices",
	"/etc/skillbox":       "skillbox's own state",
	"/run/skillbox":       "skillbox's own state",
	"/var/run/skillbox":   "skillbox's own state",
	"/var/lib/skillbox":   "skillbox's own state",
	"/var/log/skillbox":   "skillbox's own state",
	"/var/cache/skillbox": "skillbox's own state",
}

// sensitive are host paths that need the author's word, and all below them.
var sensitive = map[string]string{
	"/etc":                "accounts, keys and passwords of the host's services",
	"/run":                "sockets of the host's services",
	"/var/run":            "sockets of the host's services",
	"/boot":               "the host's kernel",
	"/root":               "the home of root",
	"/var/log":            "the host's logs",
	"/var/spool/cron":     "the host's scheduled jobs",
	"/var/lib/docker":     "other containers",
	"/var/lib/containerd": "other containers",
	"/var/lib/containers": "other containers",
	"/var/lib/kubelet":    "other containers and their secrets",
}

// parents hold sensitive paths; only they themselves need the author's word.
var parents = map[string]string{
	"/home":    "everyone's home",
	"/var":     "state and sockets of the host's services",
	"/var/lib": "state of the host's services",
	"/tmp":     "files and sockets of other programs",
	"/var/tmp": "files of other programs",
}

// private are names of files and directories that hold credentials, wherever they are.
var private = []string{
	".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".gcloud", "gcloud", ".netrc", ".git-credentials", ".npmrc",
	".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".password-store", ".mozilla", ".thunderbird", "keyrings",
	".bash_history", ".zsh_history", "id_rsa", "id_ecdsa", "id_ed25519",
}

// hostRisk says why a bind may not show the host path p. A hard risk stands
// whatever the author says. The check is of the text; what the path leads to
// is checked when it is opened.
func hostRisk(p string) (why string, hard bool) {
	if p == "/" {
		return "it is the whole host", true
	}
	for place, what := range forbidden {
		if beneath(place, p) {
			return "it holds " + what, true
		}
	}
	lower := strings.ToLower(p)
	parts := strings.Split(lower[1:], "/")
	for i, part := range parts {
		if part == "skillbox" && i > 0 && slices.Contains([]string{"share", "state", ".config", ".cache"}, parts[i-1]) ||
			part == "skillbox" && beneath("/run/user", p) {
			return "it holds skillbox's own state", true
		}
	}
	for _, part := range parts {
		if slices.Contains(private, part) {
			return part + " holds credentials", false
		}
		if strings.HasSuffix(part, ".sock") {
			return part + " is the door to a service of the host", false
		}
	}
	for place, what := range sensitive {
		if beneath(place, p) {
			return "it holds " + what, false
		}
	}
	if what, ok := parents[p]; ok {
		return "it holds " + what, false
	}
	if len(parts) == 2 && parts[0] == "home" {
		return "it is a whole home directory, credentials included", false
	}
	return "", false
}

// Shown says where a policy can show a host path: at the same path, unless skillbox fills that place itself; then at another, and place says
// which. dangerous is that the author must say that it is meant. An empty path is that no policy may show it, for the reason why.
func Shown(host string) (at, place string, dangerous bool, why string) {
	if checkAbsolute(host) != nil {
		return "", "", false, "it is no clean absolute path"
	}
	why, hard := hostRisk(host)
	if hard {
		return "", "", false, why
	}
	for _, place := range occupied {
		if overlap(place, host) {
			return "/data/" + path.Base(host), place, why != "", why
		}
	}
	return host, "", why != "", why
}

// CheckBundlePath refuses a place in the box where a bundle cannot appear besides its own: one that skillbox fills, but for directories below a
// home, where agents keep their skills, and one that a bind of p has.
func CheckBundlePath(at string, p *Policy) error {
	if err := checkAbsolute(at); err != nil {
		return err
	}
	if len(at) > 1024 {
		return bad("", "the path is longer than 1024 bytes")
	}
	homes := strings.HasPrefix(at, "/home/") && strings.Count(at, "/") > 2 || strings.HasPrefix(at, "/root/")
	for _, place := range occupied {
		if overlap(place, at) && !(homes && (place == "/home" || place == "/root")) {
			return bad("choose a path of its own, such as /home/skill/.claude/skills/NAME", "%s is taken: skillbox fills %s itself", show(at), place)
		}
	}
	for _, bind := range slices.Concat(p.Filesystem.Read, p.Filesystem.Write) {
		if overlap(bind.Path, at) {
			return bad("choose a path of its own", "%s and %s of the policy's filesystem overlap", show(at), show(bind.Path))
		}
	}
	return nil
}

// beneath tells whether p is dir or lies below it; both are clean.
func beneath(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func overlap(a, b string) bool { return beneath(a, b) || beneath(b, a) }

// bind completes and checks one item of filesystem.read or filesystem.write.
func (r *reader) bind(at string, n *yaml.Node, b *Bind) {
	if b.Host == "" {
		r.fail(n, at, bad("add host: /path", "a bind needs a host path"))
		return
	}
	if b.Path == "" {
		b.Path = b.Host
	}
	if why, hard := hostRisk(b.Host); why != "" && (hard || !b.Dangerous) {
		hint := "if it is meant, add dangerous: true to the bind"
		if hard {
			hint = "this cannot be allowed"
		}
		r.failAt(r.positions[at+".host"], at+".host", bad(hint, "%s may not be shown to a skill: %s", show(b.Host), why))
	}
	for _, place := range occupied {
		if overlap(place, b.Path) {
			where, field := r.positions[at+".path"], at+".path"
			if where.Line == 0 {
				where, field = r.positions[at+".host"], at+".host"
			}
			r.failAt(where, field, bad("choose a path of its own, such as /data", "%s is taken: skillbox fills %s itself", show(b.Path), place))
			break
		}
	}
}

// binds refuses binds whose outcome would depend on their order.
func (r *reader) binds(p *Policy) {
	type placed struct {
		Bind
		field string
		write bool
	}
	var all []placed
	add := func(field string, binds []Bind, write bool) {
		for i, b := range binds {
			all = append(all, placed{b, fmt.Sprintf("%s[%d]", field, i), write})
		}
	}
	add("filesystem.read", p.Filesystem.Read, false)
	add("filesystem.write", p.Filesystem.Write, true)
	for i, b := range all {
		at := r.positions[b.field]
		if strings.HasPrefix(r.file, "/") && (b.Host == r.file || b.write && beneath(b.Host, path.Clean(r.file))) {
			r.failAt(at, b.field, bad("keep the policy elsewhere", "%s holds this policy file itself", show(b.Host)))
		}
		for _, a := range all[:i] {
			if overlap(a.Path, b.Path) {
				r.failAt(at, b.field, bad("give each bind a path of its own", "%s and %s of %s overlap", show(b.Path), show(a.Path), a.field))
			}
			if a.write != b.write && overlap(a.Host, b.Host) {
				r.failAt(at, b.field, bad("one host path is either readable or writable", "%s and %s of %s overlap on the host", show(b.Host), show(a.Host), a.field))
			}
		}
	}
}
