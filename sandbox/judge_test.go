package sandbox

import (
	"testing"

	"skillbox/audit"
	"skillbox/rootfs"
)

func TestARefusedFileSaysWhatWouldAllowIt(t *testing.T) {
	plan := &Plan{Tree: rootfs.Spec{Binds: []rootfs.Bind{
		{Source: rootfs.Source{Path: "/srv/in"}, Path: "/data"}, {Source: rootfs.Source{Path: "/srv/out"}, Path: "/out", Writable: true},
	}}}
	for _, c := range []struct{ op, path, errno, rule, remedy string }{
		{"create", "/etc/x", "EROFS", "filesystem.write has nothing that holds it", "none at this path: skillbox fills /etc itself"},
		{"create", "/skill/a b/x", "EROFS", "rootfs.bundle read-only", "rootfs: {bundle: copy-on-write}"},
		{"write", "/data/f", "EROFS", "filesystem.read: {host: /srv/in, path: /data}", "move {host: /srv/in, path: /data} from filesystem.read to filesystem.write"},
		{"remove", "/out/f", "EACCES", "the file's mode or owner", "none by the policy: the owner on the host must let others write it"},
		{"open", "/data/secret", "EACCES", "the file's mode", "none by the policy: the file's owner must let others read it"},
		{"open", "/home/me/a: b", "ENOENT", "filesystem.read has nothing that holds it, should the host have it", `none at this path: skillbox fills /home itself; elsewhere: filesystem: {read: [{host: "/home/me/a: b", path: "/data/a: b"}]}`},
		{"create", "/srv/data/x", "ENOENT", "filesystem.write has nothing that holds it, should the host have it", "filesystem: {write: [{host: /srv/data}]}"},
		{"open", "/var/lib/docker/x", "ENOENT", "filesystem.read has nothing that holds it, should the host have it", "filesystem: {read: [{host: /var/lib/docker/x, dangerous: true}]}"},
		{"open", "/var/lib/skillbox/x", "ENOENT", "filesystem.read has nothing that holds it, should the host have it", "none: no policy may show /var/lib/skillbox/x: it holds skillbox's own state"},
		{"open", "/usr/lib/none.so", "ENOENT", "", ""},
		{"open", "relative", "ENOENT", "", ""},
		{"create", "/tmp/d", "EEXIST", "", ""},
	} {
		verdict := audit.Failed
		if c.errno == "EROFS" || c.errno == "EACCES" {
			verdict = audit.Denied
		}
		d := plan.judge(audit.File{Op: c.op, Path: c.path, Outcome: audit.Outcome{Verdict: verdict, Error: c.errno}}).(audit.File)
		if d.Rule != c.rule || d.Remedy != c.remedy {
			t.Errorf("%s %s: %s: rule %q, remedy %q", c.op, c.path, c.errno, d.Rule, d.Remedy)
		}
		denial, n := denialOf(d)
		if told := denial.Kind == "file" && n == 1; told != (c.remedy != "") {
			t.Errorf("%s %s: %s: %+v", c.op, c.path, c.errno, denial)
		}
	}
}

func TestAWatchedLevelIsRefusedWhereNobodyMayLook(t *testing.T) {
	h := &Host{Mode: "root", Unwatchable: "kernel.yama.ptrace_scope is 3"}
	for _, text := range []string{"version: 1\naudit: {syscalls: security}\n", "version: 1\naudit: {files: writes}\n"} {
		err := (&Plan{}).refuse(h, parsed(t, text))
		if refusal, ok := err.(*Refusal); !ok || refusal.Position.Line != 2 || refusal.Hint == "" {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := (&Plan{}).refuse(h, parsed(t, "version: 1\naudit: {syscalls: denied, files: none}\n")); err != nil {
		t.Error(err)
	}
}
