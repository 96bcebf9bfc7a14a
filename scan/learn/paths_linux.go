package learn

import (
	"os"
	"regexp"
	"strconv"

	"skillbox/policy"
)

// filesRemedy is how a refused file's record says what would show it, and moveRemedy, that what is shown for reading would have to be for writing.
var (
	filesRemedy = regexp.MustCompile(`^filesystem: \{(read|write): \[\{host: (.+)\}\]\}`)
	moveRemedy  = regexp.MustCompile(`^move (\{host: .+\}) from filesystem.read to filesystem.write`)
)

const riskOfWriting = "risky: it writes outside /output"

// outside writes down a path of the host's that a skill looked for. The host's files are shown only where somebody has named them; what the host
// does not have, and what no policy can show, is passed over: programs look in many places for what need not be.
func (l *learning) outside(r refusal) {
	if m := moveRemedy.FindStringSubmatch(r.remedy); m != nil {
		l.wish("filesystem.write", m[1], riskOfWriting+", where it is shown what may only be read", r.at)
		l.excused[r.what] = leftToAPerson
		return
	}
	m := filesRemedy.FindStringSubmatch(r.remedy)
	if m == nil {
		return
	}
	key, path := m[1], m[2]
	if text, err := strconv.Unquote(path); err == nil {
		path = text
	}
	if _, err := os.Lstat(path); err != nil && key == "read" {
		return
	}
	b := policy.Bind{Host: path, Path: path}
	why := "the host has it, and nobody has named it: give it to --policy or --ceiling to have it tried"
	if key == "write" {
		why = riskOfWriting + "; give it a directory of its own by --policy or --ceiling to have it tried"
	}
	if !showable(key, b) {
		if b.Dangerous = true; !showable(key, b) {
			return
		}
		why = "risky: a sensitive path of the host's"
	}
	l.wish("filesystem."+key, binds([]policy.Bind{b})[0], why, r.at)
	l.excused[r.what] = leftToAPerson
}

// showable tells whether a policy may show a path as it stands.
func showable(key string, b policy.Bind) bool {
	_, err := policy.Parse("", []byte("version: 1\nfilesystem: {"+key+": ["+binds([]policy.Bind{b})[0]+"]}\n"))
	return err == nil
}
