package scan

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"skillbox/audit"
)

// credentials are files of a home that hold credentials or what a browser knows, by how they begin.
var credentials = []string{
	".ssh/id_", ".ssh/config", ".aws/credentials", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".docker/config.json", ".kube/config", ".config/gcloud/",
	".config/gh/", ".config/google-chrome/", ".config/chromium/", ".mozilla/", ".gnupg/", ".bash_history", ".zsh_history", ".env", ".azure/", ".password-store/",
	".local/share/keyrings/", ".config/solana/", ".ethereum/", ".bitcoin/", ".vault-token", ".pgpass", ".my.cnf",
}

// habitual are those of them that libraries and package managers open by themselves with every request: python's requests, npm.
var habitual = []string{".netrc", ".npmrc"}

// accounts are files of the system that hold what only its administrator may know.
var accounts = []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_", "/var/run/secrets/kubernetes.io/", "/run/secrets/kubernetes.io/"}

// process is a file of a process, by its number and name; foreign are those names by which its memory, files and environment are had.
var (
	process = regexp.MustCompile(`^/proc/([0-9]+)/([a-z_]+)`)
	foreign = []string{"environ", "mem", "maps", "smaps", "root", "cwd", "fd"}
)

// listed are names of which everybody looks who lists processes, pid 1 among them.
var listed = []string{"comm", "cmdline", "status", "stat"}

// lasting are files that something runs by itself, below a home.
var lasting = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv", ".zlogin", ".config/fish/", ".xinitrc", ".xprofile",
	".config/autostart/", ".config/systemd/user/", ".local/share/systemd/", ".ssh/authorized_keys", ".ssh/rc", ".ssh/config", ".gitconfig", ".config/git/",
	".vimrc", ".config/nvim/", ".emacs", ".local/bin/", "bin/", ".pam_environment", ".config/environment.d/", ".local/lib/python", ".npmrc", ".condarc", ".inputrc",
	".claude/", ".cursor/", ".codex/", ".config/claude/", ".mcp.json",
}

// services are the same for the whole system.
var services = []string{
	"/etc/cron", "/var/spool/cron", "/etc/systemd/", "/usr/lib/systemd/", "/lib/systemd/", "/etc/init.d/", "/etc/rc", "/etc/profile", "/etc/bash.bashrc",
	"/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/environment", "/etc/sudoers", "/etc/pam.d/", "/etc/passwd", "/etc/shadow", "/etc/ssh/", "/etc/udev/",
}

// tells are what distinguishes a box, a container or a virtual machine from a common machine, and is no use otherwise. Files that programs read
// to find their own limits, such as /proc/self/cgroup, are not among them.
var tells = regexp.MustCompile(`^(/\.dockerenv|/run/\.containerenv|/proc/1/(cgroup|sched|environ|comm|cmdline|status|mountinfo|mounts)|/proc/(xen|vz|bc)|` +
	`/sys/class/dmi/id/.*|/sys/devices/virtual/dmi/id/.*|/sys/hypervisor/.*|/proc/sys/kernel/osrelease\.container|/proc/scsi/scsi|/proc/ide/.*)$`)

// scratch are the places where a skill may write.
var scratch = []string{"/tmp/", "/output/", "/dev/", "/proc/self/", "/run/skillbox/", "/var/tmp/", homeDir + "/", "/home/skill/"}

// files judges what was opened, made and changed.
func (s *sight) files() {
	var looked []audit.Record
	for _, e := range s.run.Events {
		d, ok := e.Detail.(audit.File)
		if !ok {
			continue
		}
		if tells.MatchString(d.Path) && !s.lists(d) {
			looked = append(looked, e)
		}
		if writes(d) {
			for _, p := range []string{d.Path, d.To} {
				if p != "" {
					s.written(e, d, p)
				}
			}
			continue
		}
		s.read(e, d)
	}
	s.tells(looked)
}

// writes tells whether a file was to be changed.
func writes(d audit.File) bool {
	if d.Op != "open" {
		return true
	}
	return slices.ContainsFunc(d.Flags, func(f string) bool { return f == "O_WRONLY" || f == "O_RDWR" || f == "O_CREAT" || f == "O_TRUNC" })
}

func (s *sight) read(e audit.Record, d audit.File) {
	at := s.text.holding(d.Path, path.Base(d.Path))
	if rest, ok := inHome(d.Path); ok && begins(rest, credentials) {
		at, severity := s.text.holding(rest, path.Base(rest)), None
		if begins(rest, habitual) {
			severity = Low
		}
		s.note(SecretRead, severity, at, fmt.Sprintf("The skill opened %s%s.", seen("~/"+rest), became(d.Outcome)), e)
		return
	}
	if begins(d.Path, accounts) || anothers(d) && !tells.MatchString(d.Path) {
		s.note(SecretRead, None, at, fmt.Sprintf("The skill opened %s%s.", seen(d.Path), became(d.Outcome)), e)
		return
	}
	if name, ok := strings.CutPrefix(d.Path, "/run/secrets/"); ok && name != "" && !slices.Contains(s.declared.Env.Secrets, name) {
		s.note(SecretRead, Medium, at, fmt.Sprintf("The skill looked for the secret %s, which it does not declare.", seen(name)), e)
	}
}

// anothers tells a file by which a process has another's memory, files or environment.
func anothers(d audit.File) bool {
	m := process.FindStringSubmatch(d.Path)
	return m != nil && m[1] != strconv.Itoa(d.PID) && slices.Contains(foreign, m[2])
}

// lists tells the look at pid 1 of a program that looks at every process.
func (s *sight) lists(d audit.File) bool {
	m := process.FindStringSubmatch(d.Path)
	if m == nil || !slices.Contains(listed, m[2]) {
		return false
	}
	return slices.ContainsFunc(s.run.Events, func(e audit.Record) bool {
		other, ok := e.Detail.(audit.File)
		if !ok || other.PID != d.PID {
			return false
		}
		o := process.FindStringSubmatch(other.Path)
		return o != nil && o[1] != m[1] && o[1] != strconv.Itoa(d.PID) && o[2] == m[2]
	})
}

func (s *sight) written(e audit.Record, d audit.File, p string) {
	at := s.text.holding(p, path.Base(p))
	if rest, ok := inHome(p); ok {
		at := s.text.holding(rest, path.Base(rest))
		if begins(rest, lasting) && d.Op != "directory" {
			s.note(Persistence, None, at, fmt.Sprintf("The skill changes %s%s.", seen("~/"+rest), became(d.Outcome)), e)
		}
		return // what else became of the home is seen there
	}
	switch {
	case begins(p, services):
		s.note(Persistence, None, at, fmt.Sprintf("The skill changes %s%s.", seen(p), became(d.Outcome)), e)
		s.note(WriteOutside, None, at, fmt.Sprintf("The skill changes %s%s.", seen(p), became(d.Outcome)), e)
	case strings.HasPrefix(p, "/skill/__pycache__/") || strings.Contains(p, "/__pycache__/"):
		// Python compiles what it imports.
	case strings.HasPrefix(p, "/skill/"):
		s.note(WriteOutside, Low, at, fmt.Sprintf("The skill changes its own files: %s%s.", seen(p), became(d.Outcome)), e)
	case begins(p, []string{"/proc/sys", "/proc/1/", "/sys/"}):
		s.note(WriteOutside, High, at, fmt.Sprintf("The skill changes a setting of the kernel, %s%s.", seen(p), became(d.Outcome)), e)
	case !begins(p, scratch) && !s.bound(p):
		s.note(WriteOutside, None, at, fmt.Sprintf("The skill changes %s%s.", seen(p), became(d.Outcome)), e)
	}
}

// bound tells a path that the declared policy lets the skill write to.
func (s *sight) bound(p string) bool {
	for _, b := range s.declared.Filesystem.Write {
		if p == b.Path || strings.HasPrefix(p, b.Path+"/") {
			return true
		}
	}
	return false
}

// tells judges all of them together: one may have another reason.
func (s *sight) tells(looked []audit.Record) {
	if len(looked) == 0 {
		return
	}
	var paths []string
	for _, e := range looked {
		if p := e.Detail.(audit.File).Path; !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	severity := Medium
	if len(paths) > 2 {
		severity = High
	}
	s.note(SandboxDetection, severity, s.text.holding(paths...), fmt.Sprintf("The skill looked at %s.", seen(strings.Join(paths[:min(len(paths), 8)], ", "))), looked...)
}

// home judges what became of the decoy home, which no record need tell of.
func (s *sight) home() {
	for _, c := range s.changes {
		name := clean(c.name)
		about := s.of(func(e *audit.Record) bool {
			d, ok := e.Detail.(audit.File)
			if !ok || !writes(d) {
				return false
			}
			at, inside := inHome(d.Path)
			to, also := inHome(d.To)
			return inside && at == name || also && to == name
		})
		switch at := s.text.holding(c.name, path.Base(c.name)); {
		case begins(c.name, lasting):
			if len(about) == 0 { // otherwise the records have told
				s.note(Persistence, None, at, fmt.Sprintf("~/%s was %s.", name, c.what))
			}
		case isDecoy(c.name) && c.what != "made":
			s.note(WriteOutside, High, at, fmt.Sprintf("The user's file ~/%s was %s.", name, c.what), about...)
		}
	}
	if s.homeFull {
		s.note(ResourceAbuse, None, place{}, fmt.Sprintf("The skill wrote more than %d MiB or %d files into the home, and was ended.", maxHomeBytes>>20, maxHomeFiles),
			s.of(func(e *audit.Record) bool { return e.Kind == audit.RunEnded })...)
	}
}

// became says what came of it where it did not succeed.
func became(o audit.Outcome) string {
	switch {
	case o.Verdict == audit.Denied:
		return " and was refused"
	case o.Verdict == audit.Failed || o.Error != "":
		return " and did not find it"
	}
	return ""
}

func begins(text string, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasPrefix(text, w) || text+"/" == w })
}
