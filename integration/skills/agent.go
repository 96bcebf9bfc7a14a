package skills

import "strings"

const (
	hello = "#!/bin/sh\necho \"hello $*\"\n"
	front = "---\nname: %\ndescription: Says hello.\n---\n# How to\n"
)

func named(name string) string { return strings.Replace(front, "%", name, 1) }

// agentSkills are Agent Skills as their specification has them, and the ways in which scripts are started.
func agentSkills() []skill {
	one := func(name, file, content, cases string) skill {
		return skill{"agent/" + name, map[string]string{"SKILL.md": named(name), "scripts/" + file: content}, cases}
	}
	said := "words: [a, --b]\nexpect: {stdout: 'hello a --b', warnings: {lacks: SKILL.md}}"
	return []skill{
		{"agent/all-fields", map[string]string{
			"SKILL.md": "---\nname: all-fields\ndescription: |\n  Uses every key.\n  Two lines.\nlicense: Apache-2.0\ncompatibility: Needs sh.\nallowed-tools: Bash(git:*) Read\n" +
				"metadata:\n  author: someone\n  version: \"1.0\"\nsecurity_policy:\n  timeout: 20s\n---\n# How to\n",
			"scripts/run.sh": hello, "references/REFERENCE.md": "# more\n", "assets/data.txt": "data\n",
		}, said},
		{"agent/unknown-keys", map[string]string{
			"SKILL.md":       "---\nname: unknown-keys\ndescription: Says hello.\nmodel: big\nuser-invocable: false\nhooks: {a: [{b: [1, 2.5, null]}]}\n\"odd key\": x\n3: y\n---\n",
			"scripts/run.sh": hello,
		}, said},
		{"agent/lower-case-file", map[string]string{"skill.md": named("lower-case-file"), "scripts/run.sh": hello}, said},
		{"agent/tools-list", map[string]string{
			"SKILL.md": "---\nname: tools-list\ndescription: d\nallowed-tools:\n- Read\n- Bash(ls *)\nmetadata: {tags: [a, b], nested: {c: 1}}\n---\n", "scripts/run.sh": hello,
		}, said},
		one("no-exec-bit", "run.sh", "echo \"hello $*\"\n", said),
		one("shebang-alone", "run", "#!/bin/sh\necho \"hello $*\"\n", said),
		one("python", "run.py", "import sys\nprint('hello', *sys.argv[1:])\n", said),
		one("perl", "run.pl", "print \"hello @ARGV\\n\";\n", said),
		one("javascript", "run.js", "console.log('hello', ...process.argv.slice(2))\n", said),
		one("module", "run.mjs", "import path from 'node:path'\nconsole.log('hello', ...process.argv.slice(2))\n", said),
		one("uv", "run.py", "# /// script\n# requires-python = \">=3.6\"\n# dependencies = []\n# ///\nimport sys\nprint('hello', *sys.argv[1:])\n",
			"policy: {command: [uv, run, --script, scripts/run.py]}\nwords: [a]\nexpect: {stdout: hello a}"),
		one("uv-lacking", "run.py", "# /// script\n# dependencies = [\"no-such-thing>=2\"]\n# ///\n",
			"policy: {command: [uv, run, scripts/run.py]}\nexpect: {exit: 1, stderr: ['no-such-thing>=2', rootfs.base]}"),
		one("python-word", "run.py", "print('hello')\n", "policy: {command: [python, scripts/run.py]}\nexpect: {stdout: hello}"),
		{
			"agent/two-scripts",
			map[string]string{"SKILL.md": named("two-scripts"), "scripts/one.sh": "echo one $1\n", "scripts/two.sh": "echo two $1\n", "scripts/lib.txt": ""},
			"- name: by its path\n  words: [scripts/two.sh, x]\n  expect: {stdout: two x}\n" +
				"- name: by --entry\n  entry: scripts/one.sh\n  words: [y]\n  expect: {stdout: one y}\n" +
				"- name: by nobody\n  expect: {verdict: refused, exit: 125, error: [nothing says what to run, scripts/one.sh]}",
		},
		{
			"agent/names-its-own-path",
			map[string]string{"SKILL.md": named("names-its-own-path"), "scripts/run.sh": "cat ~/.claude/skills/me/data.txt; cat /home/ada/skills/me/data.txt\n", "data.txt": "found\n"},
			"- name: in the box's home\n  mount_at: /home/skill/.claude/skills/me\n  expect: {exit: 1, stdout: found}\n" +
				"- name: where it lies on the host\n  mount_at: /home/ada/skills/me\n  expect: {stdout: found}\n" +
				"- name: and may be changed there\n  mount_at: /home/ada/skills/me\n  policy: {rootfs: {bundle: copy-on-write}, command: [sh, -c, 'echo new > /home/ada/skills/me/data.txt && cat /skill/data.txt']}\n  expect: {stdout: new, changes: changed data.txt}\n" +
				"- name: in a place that is taken\n  mount_at: /usr/lib/me\n  expect: {verdict: refused, exit: 125, error: [/usr]}",
		},
		{"agent/instructions-alone", map[string]string{"SKILL.md": named("instructions-alone"), "references/a.md": "# a\n"}, "words: [cat, references/a.md]\nexpect: {stdout: '# a'}"},
		{"agent/own-policy", map[string]string{"SKILL.md": named("own-policy"), "policy.yaml": "version: 1\ntimeout: 1s\ncommand: [sleep, \"30\"]\n"}, "expect: {verdict: timed_out, exit: 124}"},
		{"agent/asks-for-network", map[string]string{
			"SKILL.md": "---\nname: asks-for-network\ndescription: d\nsecurity_policy:\n  network: {egress: [{domains: [example.com], ports: [443]}]}\n---\n", "scripts/run.sh": hello,
		}, "words: [x]\nexpect: {stdout: hello x, warnings: [network.egress]}"},
		{
			"agent/writes-itself",
			map[string]string{"SKILL.md": named("writes-itself"), "scripts/run.sh": "echo new > made.txt && cat made.txt\n"},
			"- name: read-only\n  expect: {exit: 2, stderr: [Read-only file system]}\n" +
				"- name: on a copy\n  policy: {rootfs: {bundle: copy-on-write}}\n  expect: {stdout: new, changes: added made.txt}",
		},
	}
}

// brokenSkills are Agent Skills whose frontmatter is not as the specification wants it. Their scripts run all the same.
func brokenSkills() []skill {
	var all []skill
	for _, b := range []struct{ name, text, warns string }{
		{"no-frontmatter", "# A title\n\nText.\n", "has no frontmatter"},
		{"empty-file", "", "has no frontmatter"},
		{"no-end", "---\nname: no-end\ndescription: d\n\n# A title\n", "the frontmatter does not end"},
		{"unquoted-colon", "---\nname: unquoted-colon\ndescription: Use it when: always\n---\n", "SKILL.md:3:"},
		{"tabs", "---\nname: tabs\nmetadata:\n\tversion: 1\n---\n", "SKILL.md:4:"},
		{"no-name", "---\ndescription: d\n---\n", "the skill is called \"no-name\""},
		{"upper-case", "---\nname: UPPER Case\ndescription: d\n---\n", "name: the specification wants lower-case"},
		{"long-description", "---\nname: long-description\ndescription: " + strings.Repeat("long ", 300) + "\n---\n", "the specification allows 1024"},
		{"not-utf8", "---\nname: not-utf8\ndescription: caf\xe9\n---\n", "not valid UTF-8"},
		{"wrong-types", "---\nname: [a]\ndescription: {b: 1}\nlicense: [MIT]\ncompatibility: {c: 2}\nmetadata: 3\nallowed-tools: {d: 4}\nversion: [5]\n---\n", "license: expected a text, found a list"},
		{"anchors", "---\nname: &a anchors\ndescription: *a\n---\n", "anchors are not supported"},
	} {
		all = append(all, skill{
			"broken/" + b.name,
			map[string]string{"SKILL.md": b.text, "scripts/run.sh": hello},
			"words: [x]\nexpect: {stdout: hello x, warnings: ['" + b.warns + "']}",
		})
	}
	good := "words: [x]\nexpect: {stdout: hello x, warnings: {lacks: SKILL.md}}"
	return append(all,
		skill{"broken/byte-order-mark", map[string]string{"SKILL.md": "\ufeff" + named("byte-order-mark"), "scripts/run.sh": hello}, good},
		skill{"broken/windows-lines", map[string]string{"SKILL.md": strings.ReplaceAll(named("windows-lines"), "\n", "\r\n"), "scripts/run.sh": hello}, good},
		skill{
			"broken/policy-in-broken",
			map[string]string{"SKILL.md": "---\nname: x: y\nsecurity_policy: {timeout: 1s}\n---\n", "scripts/run.sh": hello},
			"expect: {verdict: refused, exit: 125, stdout: '', error: ['SKILL.md:2:']}",
		},
		skill{
			"broken/policy-unknown-key",
			map[string]string{"SKILL.md": "---\nname: a\ndescription: d\nsecurity_policy: {netwrok: none}\n---\n", "scripts/run.sh": hello},
			"expect: {verdict: refused, exit: 125, error: [netwrok]}",
		},
	)
}
