package skills

const (
	echo     = "class Echo:\n    def execute(self, params):\n        return {'got': params}\n"
	manifest = "name: x/y\n"
)

// skillwareSkills are Skillware skills: manifest.yaml beside skill.py.
func skillwareSkills() []skill {
	one := func(name, yaml, python, cases string) skill {
		return skill{"skillware/" + name, map[string]string{"manifest.yaml": yaml, "skill.py": python}, cases}
	}
	asked := "params: {a: 1}\nexpect: {result: {json: {got: {a: 1}}}}"
	withData := one("data-file", manifest, "import json, pathlib\nclass S:\n    def execute(self, params):\n        return json.loads((pathlib.Path(__file__).parent / 'data.json').read_text())\n",
		"params: {}\nexpect: {result: {json: {k: v}}}")
	withData.files["data.json"] = `{"k": "v", "more": 1}`
	return []skill{
		one("minimal", manifest, echo, asked),
		one("all-fields", "name: office/all\nversion: 1.2.0\ndescription: |\n  Uses every key.\nshort_description: all\nparameters:\n  type: object\n  properties:\n    a: {type: integer}\n  required: [a]\n"+
			"outputs: {got: object}\nrequirements: [no-such-thing]\nenv_vars:\n  A_KEY: {required: false}\nconstitution: |\n  1. Be kind.\nissuer: {name: me}\npresentation: {icon: x}\nsecurity_policy: {timeout: 20s}\n",
			echo, "- name: good\n  params: {a: 1}\n  expect: {result: {json: {got: {a: 1}}}}\n"+
				"- name: lacking\n  params: {}\n  expect: {exit: 125, error: [\"a\", schema]}\n- name: of another type\n  params: {a: x}\n  expect: {exit: 125, error: [/a]}"),
		one("asynchronous", manifest, "class S:\n    async def aexecute(self, params):\n        return 1\n", "params: {}\nexpect: {result: {json: 1}}"),
		one("environment", manifest+"env_vars: [A_KEY]\n", "import os\nclass S:\n    def execute(self, params):\n        return [os.environ.get('A_KEY'), os.environ.get('OTHER')]\n",
			"params: {}\nenv: {A_KEY: secret, OTHER: other}\npolicy: {env: {pass: [A_KEY, OTHER]}}\nexpect: {result: {json: [secret, null]}}"),
		one("unknown-keys", manifest+"something: {new: [1, null]}\n1: 2\n", echo, asked),
		one("two-classes", manifest, "class A:\n    def execute(self, p): pass\nclass B:\n    def execute(self, p): pass\n", "params: {}\nexpect: {exit: 1, stderr: [several classes]}"),
		one("raises", manifest, "class A:\n    def execute(self, p): raise ValueError('boom')\n", "params: {}\nexpect: {exit: 1, stderr: ['ValueError: boom']}"),
		one("no-name", "description: d\n", echo, "params: {}\nexpect: {verdict: refused, exit: 125, error: ['manifest.yaml: name: the key is missing']}"),
		one("wrong-types", "name: x\nparameters: [1]\n", echo, "params: {}\nexpect: {verdict: refused, exit: 125, error: ['manifest.yaml:2:13: parameters']}"),
		withData,
	}
}

// skillboxSkills have skillbox's own manifest, which is strict.
func skillboxSkills() []skill {
	one := func(name, yaml, script, cases string) skill {
		return skill{"skillbox/" + name, map[string]string{"skillbox.yaml": yaml, "main.sh": script}, cases}
	}
	head := func(name string) string { return "version: 1\nname: " + name + "\ncommand: [sh, main.sh]\n" }
	refused := func(words string) string { return "expect: {verdict: refused, exit: 125, error: ['" + words + "']}" }
	return []skill{
		one("minimal", "version: 1\nname: minimal\n", hello, "words: [sh, main.sh, x]\nexpect: {stdout: hello x}"),
		one("all-fields", head("all-fields")+"description: Uses every key.\nparams_schema: {type: object, required: [text], properties: {text: {type: string}}}\nsecurity_policy: {timeout: 20s}\n", "cat\n",
			"- name: good\n  params: {text: a}\n  expect: {stdout: {json: {text: a}}}\n- name: bad\n  params: {text: 1}\n  expect: {exit: 125, error: [/text]}"),
		one("input-and-output", head("input-and-output"), "cp /input/notes.txt /output/copy.txt\n", "inputs: {notes.txt: data/notes.txt}\nexpect: {outputs: copy.txt}"),
		one("standard-input", head("standard-input"), "tr a-z A-Z\n", "stdin: abc\nexpect: {stdout: ABC}"),
		one("result-file", head("result-file"), "echo '{\"n\": [1, 2]}' > $SKILLBOX_RESULT_FILE\n", "expect: {result: {json: {n: [1, 2]}}}"),
		one("denied-call", head("denied-call"), "perl -e 'syscall(101, 16, 1, 0, 0); print \"$!\\n\"'\n", "expect: {exit: 0, denials: [syscall ptrace]}"),
		one("too-slow", head("too-slow"), "sleep 30\n", "timeout: 500ms\nexpect: {verdict: timed_out}"),
		one("unknown-key", head("unknown-key")+"comand: [x]\n", hello, refused("skillbox.yaml:4:1: comand: unknown key")),
		one("no-version", "name: no-version\n", hello, refused("version: must be 1")),
		one("command-is-text", "version: 1\nname: a\ncommand: sh main.sh\n", hello, refused("command: expected a list of words")),
		one("broken-policy", head("broken-policy")+"security_policy: {network: [1, {}]}\n", hello, refused("network")),
	}
}

// engineSkills are manifests of skill-engine, each with several skills.
func engineSkills() []skill {
	one := func(name, toml, cases string) skill {
		return skill{"engine/" + name, map[string]string{".skill-engine.toml": "version = \"1\"\n" + toml}, cases}
	}
	docker := func(lines string) string {
		return "[skills.box]\nsource = \"docker:example.com/none:1\"\nruntime = \"docker\"\n[skills.box.docker]\nimage = \"example.com/none:1\"\n" + lines
	}
	refused := func(words string) string {
		return "tool: box\nwords: [run]\nexpect: {exit: 125, error: ['" + words + "']}"
	}
	native := func(name, lines string) string {
		return "[skills." + name + "]\nsource = \".\"\nruntime = \"native\"\n" + lines
	}
	return []skill{
		one("native-words", native("echo", ""), "tool: echo\nwords: [hello, name=ada, n=1]\nexpect: {stdout: hello --name ada -n 1}"),
		one("native-env", native("printenv", "[skills.printenv.instances.default.env]\nMODE = \"${NO_SUCH:-fast}\"\n"), "tool: printenv\nwords: [MODE]\nexpect: {stdout: fast}"),
		one("native-without-network", native("grep", "[skills.grep.instances.default.capabilities]\nnetwork_access = false\n"),
			"tool: grep\nwords: [-c, ':', /proc/net/dev]\nexpect: {stdout: '1'}"),
		one("unknown-fields", "surprise = [1, {a = 2}]\n"+native("echo", "colour = \"green\"\n[skills.echo.more]\nx = 1979-05-27\n"), "tool: echo\nwords: [hello]\nexpect: {stdout: hello}"),
		one("no-such-skill", native("echo", ""), "tool: none\nwords: [x]\nexpect: {exit: 125, error: [none]}"),
		one("no-such-image", docker("network = \"none\"\nmemory = \"64m\"\n"), refused("example.com/none:1")),
		one("privileged", docker("extra_args = [\"--privileged\"]\n"), refused("privileged")),
		one("host-network", docker("network = \"host\"\n"), refused("network")),
		one("docker-socket", docker("volumes = [\"/var/run/docker.sock:/s\"]\n"), refused("docker.sock")),
		one("sensitive-volume", docker("volumes = [\"/etc:/e:ro\"]\n"), refused("/etc")),
	}
}
