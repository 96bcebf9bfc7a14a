package scan

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"skillbox/audit"
)

// Ways in which a command, or a line of the bundle, says what it does.
var (
	piped = regexp.MustCompile(`(?i)\b(curl|wget|fetch|nc|ncat)\b[^|;&\n]*\|\s*(sudo\s+)?(\S*/)?(ba|z|da|k)?sh\b|` +
		`(?i)\b(curl|wget)\b[^|;&\n]*\|\s*(sudo\s+)?(\S*/)?(python[0-9.]*|perl|ruby|node)\b|` +
		`(?i)\b(ba|z|da)?sh\b\s+(-c\s+)?["']?(<\(|\$\()\s*(curl|wget)\b|` +
		`(?i)\beval\b\s*["']?\$\(\s*(curl|wget)\b`)
	shellOut = regexp.MustCompile(`/dev/(tcp|udp)/|\b(nc|ncat|netcat)\b.*\s-[a-z]*[ec]\b|\bsocat\b.*\bexec:|\bbash\s+-i\b.*[<>]&|mkfifo\b.*\b(nc|ncat)\b|pty\.spawn|` +
		`(?i)socket.*(dup2|subprocess).*/bin/(ba)?sh`)
	decoded = regexp.MustCompile(`(?i)\b(base64\s+(-d|--decode)|openssl\s+(enc\s+)?-?base64\s+-d|xxd\s+-r|gunzip|zcat)\b.*\|\s*(\S*/)?((ba|z|da)?sh|python[0-9.]*|perl|ruby|node)\b|` +
		`\beval\b.*\b(base64|xxd|rev|tr)\b|` +
		`\b(exec|eval|compile)\s*\(.*(b64decode|b32decode|a85decode|b85decode|decompress|fromhex|unhexlify|rot_?13|atob|marshal\.loads|Buffer\.from\(.*(base64|hex))|` +
		`\b(new\s+)?Function\s*\(.*(atob|Buffer\.from)|` +
		`__import__\s*\(\s*["'](base64|zlib|marshal|codecs)["']\s*\).*\b(exec|eval)\b`)
	fetched   = regexp.MustCompile(`\b(exec|eval|os\.system|subprocess\.\w+|new Function|Function)\s*\(.*(urlopen|requests\.get|urllib|http\.get|fetch\s*\()`)
	schedules = regexp.MustCompile(`\bcrontab\s+(-|[^-\s]|-e|-r)|\bsystemctl\b.*\b(enable|start|link)\b|\bat\s+(now|[0-9])|\bschtasks\b|\blaunchctl\b`)
	looks     = regexp.MustCompile(`\b(systemd-detect-virt|virt-what|dmidecode|imvirt)\b`)
	miners    = regexp.MustCompile(`(?i)\b(xmrig|minerd|cpuminer|ccminer|ethminer)\b|stratum\+(tcp|ssl)://`)
)

// shells and interpreters take code from somewhere.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"}

// programs judges what was started. Words of a command are the skill's memory, but for the first: what they claim is judged all the same.
func (s *sight) programs() {
	execs := s.of(func(e *audit.Record) bool { return e.Kind == audit.ExecKind })
	for i, e := range execs {
		d := e.Detail.(audit.Exec)
		words := strings.Join(d.Argv, " ")
		what := seen(cut(words, 300))
		if words == "" {
			what = seen(d.Path)
		}
		at := s.text.holding(longest(d.Argv)...)
		or := func(what *regexp.Regexp) place { return at.or(func() place { return s.text.saying(what) }) }
		switch {
		case piped.MatchString(words) || fetched.MatchString(words):
			s.note(RemoteCode, None, or(piped), fmt.Sprintf("The skill ran %s.", what), e)
		case shellOut.MatchString(words):
			s.note(ReverseShell, None, or(shellOut), fmt.Sprintf("The skill ran %s.", what), e)
		case decoded.MatchString(words):
			s.note(ObfuscatedExec, None, or(decoded), fmt.Sprintf("The skill ran %s.", what), e)
		case schedules.MatchString(words):
			s.note(Persistence, None, or(schedules), fmt.Sprintf("The skill ran %s.", what), e)
		case looks.MatchString(words):
			s.note(SandboxDetection, None, or(looks), fmt.Sprintf("The skill ran %s.", what), e)
		case miners.MatchString(words):
			s.note(ResourceAbuse, High, at, fmt.Sprintf("The skill ran %s, which mines.", what), e)
		case s.own(d.Path):
			s.note(ObfuscatedExec, None, at, fmt.Sprintf("The skill ran %s, which it had made itself.", seen(d.Path)), e)
		}
		s.served(execs[:i+1])
	}
	s.miner()
}

// cut shortens what is clean already.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return text
}

// longest are the words of a command, the longest first: that is the one to look for in the bundle.
func longest(argv []string) []string {
	words := slices.Clone(argv)
	slices.SortStableFunc(words, func(a, b string) int { return len(b) - len(a) })
	return words[:min(len(words), 3)]
}

// own tells a program that is none of the system's and none of the bundle's: the skill has made it.
func (s *sight) own(p string) bool {
	switch {
	case strings.HasPrefix(p, "/proc/self/fd/"), strings.HasPrefix(p, "/memfd:"), strings.HasPrefix(p, "/dev/shm/"):
		return true
	}
	for _, dir := range []string{"/tmp/", "/var/tmp/", "/output/", homeDir + "/", "/home/skill/"} {
		if strings.HasPrefix(p, dir) {
			return true
		}
	}
	return false
}

// served judges a shell that was started without a command while the skill had a connection to an address.
func (s *sight) served(upTo []audit.Record) {
	e := upTo[len(upTo)-1]
	d := e.Detail.(audit.Exec)
	if !slices.Contains(shells, path.Base(d.Path)) || !bare(d.Argv) {
		return
	}
	// What a shell reads is its input: from a connection that was made before, or from a program that fetched it.
	var before []audit.Record
	for _, other := range s.run.Events {
		if c, ok := other.Detail.(audit.Connection); ok && c.Op == "connect" && c.Proto != "unix" && !other.Time.After(e.Time) && !own(c.Address) {
			before = append(before, other)
		}
	}
	for _, other := range upTo[:len(upTo)-1] {
		if p := base(other.Detail.(audit.Exec).Path); p == "curl" || p == "wget" {
			s.note(RemoteCode, None, s.text.saying(piped), fmt.Sprintf("The skill ran %s, and a shell that reads commands.", seen(cut(strings.Join(other.Detail.(audit.Exec).Argv, " "), 300))), other, e)
			return
		}
	}
	if len(before) > 0 {
		at := s.text.holding(before[0].Detail.(audit.Connection).Address).or(func() place { return s.text.saying(shellOut) })
		s.note(ReverseShell, None, at, fmt.Sprintf("The skill connected to %s and started a shell that reads commands.", destination(before[0].Detail.(audit.Connection))), append(before, e)...)
	}
}

// bare tells a shell that was given no script: it reads commands from its input.
func bare(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	for _, word := range argv[1:] {
		if word != "-i" && word != "-s" && word != "-" && word != "-l" && word != "--login" && word != "--noprofile" && word != "--norc" {
			return false
		}
	}
	return true
}

// poolPorts are where mining pools are met.
var poolPorts = []int{3333, 4444, 5555, 7777, 14444, 45700}

// miner judges a connection that looks like a pool's.
func (s *sight) miner() {
	for _, e := range s.run.Events {
		c, ok := e.Detail.(audit.Connection)
		if !ok || c.Op != "connect" {
			continue
		}
		talks := strings.Contains(c.FirstBytes, "mining.subscribe") || strings.Contains(c.FirstBytes, `"login"`)
		if talks || slices.Contains(poolPorts, c.Port) && strings.Contains(c.Name, "pool") {
			s.note(ResourceAbuse, High, s.text.holding(c.Name), fmt.Sprintf("The skill speaks with a mining pool at %s.", destination(c)), e)
		}
	}
}

// hidden judges lines of the bundle itself that run what nobody can read, or fetch what they run. The evidence is that their file was run or
// opened; where it was not, that is said.
func (s *sight) hidden() {
	for _, look := range []struct {
		rule  string
		what  *regexp.Regexp
		about string
	}{
		{RemoteCode, piped, "has a line that runs what it fetches"},
		{RemoteCode, fetched, "has a line that runs what it fetches"},
		{ObfuscatedExec, decoded, "has a line that runs what it decodes"},
		{ReverseShell, shellOut, "has a line that gives a shell to a connection"},
	} {
		at := s.text.saying(look.what)
		if at.line == 0 || s.told(look.rule, "") {
			continue
		}
		opened := s.of(func(e *audit.Record) bool {
			switch d := e.Detail.(type) {
			case audit.File:
				return strings.HasPrefix(d.Path, "/skill/") && audit.Clean(strings.TrimPrefix(d.Path, "/skill/"), 4096) == at.file
			case audit.Exec:
				return slices.ContainsFunc(d.Argv, func(w string) bool { return strings.HasSuffix(w, at.file) })
			case audit.Started:
				return slices.ContainsFunc(d.Command, func(w string) bool { return strings.HasSuffix(w, at.file) })
			}
			return false
		})
		what := fmt.Sprintf("%s %s.", at.file, look.about)
		if len(opened) > 0 {
			s.note(look.rule, High, at, what, opened...)
		} else {
			s.noteText(look.rule, Medium, at, what)
		}
	}
	s.instructions()
}

// instructions judges what SKILL.md tells the model that reads it, which runs it outside this box: nothing of it need show in a run.
func (s *sight) instructions() {
	at := s.text.find(func(name, line string) bool { return path.Base(name) == "SKILL.md" && piped.MatchString(line) })
	if at.line > 0 {
		s.noteText(RemoteCode, High, at, fmt.Sprintf("%s tells whoever reads it to run what is fetched.", at.file))
	}
}
