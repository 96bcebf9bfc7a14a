//go:build linux

package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// What docs/fingerprints.md says that a skill can tell a box by, and nothing else of it.
func TestMarksOfABoxAreTheDocumentedOnes(t *testing.T) {
	const script = `
import json, os, socket
marks = []
def look(where, text):
    for line in text.split('\n'):
        if 'skillbox' in line.lower(): marks.append(where + ': ' + line)
def read(path):
    try: return open(path, errors='replace').read(65536)
    except OSError: return ''
for path in ['comm', 'cmdline', 'status', 'stat', 'cgroup', 'attr/current']: look('pid 1 ' + path, read('/proc/1/' + path))
for line in read('/proc/self/mountinfo').splitlines():
    left, right = line.split(' - ')
    look('mounted', left.split()[3]); look('mount point', left.split()[4]); look('mount source', right.split()[1]); look('mount option', ' '.join(right.split()[2:]))
for root, dirs, files in os.walk('/etc'):
    if root.count('/') > 1: dirs.clear()
    for f in files: look('file ' + os.path.join(root, f), read(os.path.join(root, f)))
for name in os.listdir('/'): look('directory', name)
for n, v in os.environ.items(): look('variable', n)
look('host', socket.gethostname()); look('kernel', ' '.join(os.uname()))
look('resolver', ' '.join(str(a) for a in socket.getaddrinfo('x.example', 80)))
print(json.dumps({'marks': sorted(set(marks)), 'init': [read('/proc/1/comm'), read('/proc/1/cmdline').rstrip('\0')], 'host': socket.gethostname()}))
`
	inASinkhole(t, sunk, script, func(t *testing.T, r *helper.Result, _ []audit.Record) {
		var got struct {
			Marks, Init []string
			Host        string
		}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
			t.Fatal(err, r.Stdout)
		}
		want := []string{
			"mount point: /run/skillbox/bin", "mount point: /run/skillbox/init", "mount point: /run/skillbox/result",
			"mounted: /call/skillbox/bin", "mounted: /skillbox-init", "variable: SKILLBOX_RESULT_FILE",
		}
		if !slices.Equal(got.Marks, want) {
			t.Errorf("a skill sees\n%s\nand not\n%s", strings.Join(got.Marks, "\n"), strings.Join(want, "\n"))
		}
		if !slices.Equal(got.Init, []string{"init\n", "/sbin/init"}) || got.Host != "server" {
			t.Errorf("%q", got)
		}
	})
}
