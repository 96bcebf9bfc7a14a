//go:build linux

package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"skillbox/helper"
)

// engineOutput is what skill-engine's runtime answers with.
type engineOutput struct {
	Success  bool   `json:"success"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}

// engineWorld is a user's directory with an image in place of ffmpeg's: the probe, and a command that says something else.
type engineWorld struct {
	mode
	dir string // the working directory
	env []string
}

func newEngineWorld(t *testing.T, m mode) *engineWorld {
	t.Helper()
	_, env := m.images(t)
	img := imageOf(t, v1.Config{Env: []string{"PATH=/usr/local/bin", "FROM=image"}, Entrypoint: []string{"/usr/local/bin/theirs"}, Cmd: []string{"look", "theirs"}, WorkingDir: "/usr/local"},
		layerOf(t, probeFile(t, "usr/local/bin/ffmpeg"), probeFile(t, "usr/local/bin/theirs"), file{name: "workdir/"}))
	m.image(t, env, 0, "import", "--name", "linuxserver/ffmpeg:latest", "docker-archive:"+m.archiveOf(t, img))
	return &engineWorld{m, m.dir(t), append(env, "SKILLBOX_TEST_PLAIN=value")}
}

// bestEffort lets a machine without cgroups of version 2 run what names limits.
const bestEffort = "version: 1\nenforcement: best-effort\n"

// engine runs `skillbox exec --manifest` in the working directory.
func (w *engineWorld) engine(t *testing.T, manifest, policy string, words ...string) *helper.Result {
	t.Helper()
	args := []string{"--manifest", w.file(t, ".skill-engine.toml", manifest)}
	if policy != "" {
		args = append(args, "--policy", w.file(t, "policy.yaml", policy))
	}
	return w.exec(t, append(append([]string{"--json"}, args...), words...)...)
}

func (w *engineWorld) exec(t *testing.T, args ...string) *helper.Result {
	t.Helper()
	out := w.output(t, args...)
	var r helper.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("no envelope: %v\n%s", err, out)
	}
	return &r
}

func (w *engineWorld) output(t *testing.T, args ...string) []byte {
	t.Helper()
	c := w.command(append([]string{"exec"}, args...)...)
	c.Dir, c.Env = w.dir, append(c.Env, w.env...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	if stdout.Len() == 0 {
		t.Fatalf("nothing on stdout: %s", stderr.String())
	}
	return stdout.Bytes()
}

// seed is the example as skill-engine's users have it.
const seed = `[skills.ffmpeg]
source = "docker:linuxserver/ffmpeg:latest"
runtime = "docker"

[skills.ffmpeg.docker]
image = "linuxserver/ffmpeg:latest"
entrypoint = "ffmpeg"
volumes = ["${SKILL_WORKDIR}:/workdir"]
memory = "512m"
cpus = "2"
network = "none"
working_dir = "/workdir"
rm = true
`

// The example as it is written, where limits can be held; elsewhere the operator has to say that less will do.
func TestTheDockerManifestRunsAsWritten(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		m.write(t, filepath.Join(w.dir, "in.txt"), "of the caller", 0o644)
		policy := ""
		if !limited(t, m).cgroup {
			policy = bestEffort
			if r := w.engine(t, seed, "", "ffmpeg", "--", "look"); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), ".skill-engine.toml:10:8: resources.cpu") {
				t.Errorf("limits that cannot be held: %v", r.Error)
			}
		}
		got := lookedOf(t, w.engine(t, seed, policy, "ffmpeg", "--", "look", "-i", "/workdir/in.txt", "/workdir", "/usr/local/bin/theirs"))
		if want := []string{"ffmpeg", "look", "-i", "/workdir/in.txt", "/workdir", "/usr/local/bin/theirs"}; !slices.Equal(got.Argv, want) || got.Dir != "/workdir" {
			t.Errorf("ran %q in %s", got.Argv, got.Dir)
		}
		if !strings.Contains(got.Paths["/workdir/in.txt"], "of the caller") || !slices.Contains(got.Env, "FROM=image") {
			t.Errorf("saw %q with %q", got.Paths, got.Env)
		}
		r := w.engine(t, seed, policy, "ffmpeg", "--", "create", "/workdir/out.txt")
		if _, err := os.Stat(filepath.Join(w.dir, "out.txt")); err != nil || r.ExitCode != 0 || r.Policy.Name != "ffmpeg" {
			t.Errorf("%d, %v: %s; %v; policy %q", r.ExitCode, r.Error, r.Stderr, err, r.Policy.Name)
		}
	})
}

// docker is a manifest with a skill in an image, and these lines of its table.
func dockerSkill(lines string) string {
	return "[skills.s]\nsource = \"docker:linuxserver/ffmpeg\"\nruntime = \"docker\"\n[skills.s.docker]\nimage = \"linuxserver/ffmpeg:latest\"\n" + lines + "\n"
}

func TestTheCommandLineIsWhatDockerWouldRun(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		for _, c := range []struct {
			lines string
			words []string
			want  []string
			dir   string
		}{
			{"", nil, []string{"/usr/local/bin/theirs", "look", "theirs"}, "/usr/local"},
			{"", []string{"look", "mine"}, []string{"/usr/local/bin/theirs", "look", "mine"}, "/usr/local"},
			{`command = ["look", "-x"]`, []string{"mine"}, []string{"/usr/local/bin/theirs", "look", "-x", "mine"}, "/usr/local"},
			{`entrypoint = "ffmpeg"`, []string{"look"}, []string{"ffmpeg", "look"}, "/usr/local"},
			{"entrypoint = \"ffmpeg\"\ncommand = [\"look\"]\nworking_dir = \"/tmp\"", []string{"a b", "", "$HOME"}, []string{"ffmpeg", "look", "a b", "", "$HOME"}, "/tmp"},
			{"entrypoint = \"\"\ncommand = [\"ffmpeg\"]", []string{"look"}, []string{"ffmpeg", "look"}, "/usr/local"},
		} {
			got := lookedOf(t, w.engine(t, dockerSkill(c.lines), "", append([]string{"s", "--"}, c.words...)...))
			if !slices.Equal(got.Argv, c.want) || got.Dir != c.dir {
				t.Errorf("%s with %q ran %q in %s; want %q in %s", c.lines, c.words, got.Argv, got.Dir, c.want, c.dir)
			}
		}
		// Its own answer, whatever happens.
		file := w.file(t, "m.toml", dockerSkill(`entrypoint = "ffmpeg"`))
		for want, words := range map[int][]string{0: {"argv"}, 2: {"no-such-attempt"}, 125: nil} {
			args := append([]string{"--format", "skill-engine", "--manifest", file, "s", "--"}, words...)
			if words == nil {
				args = []string{"--format", "skill-engine", "--manifest", file, "none"}
			}
			var got engineOutput
			if err := json.Unmarshal(w.output(t, args...), &got); err != nil {
				t.Fatal(err)
			}
			ok := want != 0 || got.Stdout == "[\"ffmpeg\",\"argv\"]\n" && got.Stderr == ""
			if got.ExitCode != want || got.Success != (want == 0) || want != 0 && got.Stderr == "" || !ok {
				t.Errorf("%q: %+v, want %d", words, got, want)
			}
		}
	})
}

func TestVariablesReachTheSkillAndNoOthers(t *testing.T) {
	w := newEngineWorld(t, modes()[0])
	w.env = append(w.env, "TOKEN=secret: a=b", "OTHER=theirs")
	r := w.engine(t, "[defaults]\nenv.ALL = \"d\"\nenv.OVER = \"d\"\n"+dockerSkill(`entrypoint = "ffmpeg"
environment = ["MODE=fast", "KEY=${TOKEN}", "TOKEN", "NONE", "REGION=${REGION:-eu-1}", "MODE=${NEVER:-slow}"]
extra_args = ["-e", "EXTRA=1", "--env=MORE=x=y"]
[skills.s.instances.prod]
env.OVER = "prod"
config.api_url = "https://${HOST:-example.com}/"`), "", "s@prod", "--", "look")
	got := lookedOf(t, r)
	for _, want := range []string{
		"ALL=d", "OVER=prod", "MODE=slow", "KEY=secret: a=b", "TOKEN=secret: a=b", "REGION=eu-1", "EXTRA=1", "MORE=x=y", "SKILL_API_URL=https://example.com/", "FROM=image",
	} {
		if !slices.Contains(got.Env, want) {
			t.Errorf("no %s in %q", want, got.Env)
		}
	}
	for _, v := range got.Env {
		if strings.HasPrefix(v, "OTHER=") || strings.HasPrefix(v, "NONE=") || strings.HasPrefix(v, "SKILLBOX_IMAGES=") {
			t.Errorf("%s came in", v)
		}
	}
	// A policy that lists what may be passed holds for the caller's values, and they are in no policy.
	r = w.engine(t, dockerSkill(`environment = ["KEY=${TOKEN}"]`), "version: 1\nenv: {pass: [LANG]}\n", "s", "--", "look")
	if r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), "m.toml:6:16") && !strings.Contains(r.Error.Error(), ".skill-engine.toml:6:16: env.pass") {
		t.Errorf("a variable that the policy does not pass: %v", r.Error)
	}
}

func TestAnInstancesCapabilitiesHold(t *testing.T) {
	asRootAndRootless(t, func(t *testing.T, m mode) {
		w := newEngineWorld(t, m)
		for _, dir := range []string{"yes", "no"} {
			if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			m.own(t, filepath.Join(w.dir, dir))
		}
		const instance = "\n[skills.s.instances.default]\ncapabilities.allowed_paths = [\"${SKILL_WORKDIR}/yes\"]\n"
		got := lookedOf(t, w.engine(t, dockerSkill(`volumes = ["${SKILL_WORKDIR}/yes:/data"]`+instance), "", "s", "--", "look", "/data"))
		if got.Paths["/data"] == "ENOENT" {
			t.Errorf("what is allowed is not shown: %q", got.Paths)
		}
		for _, volume := range []string{"/no:/data", ":/data", "/yes/../no:/data"} {
			r := w.engine(t, dockerSkill(`volumes = ["${SKILL_WORKDIR}`+volume+`"]`+instance), "", "s", "--", "look")
			if r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), "is not within the instance's allowed_paths") {
				t.Errorf("%s: %v", volume, r.Error)
			}
		}
		// A network that the docker table asks for and the instance has not, is none; one that is asked for takes a policy that says where to.
		const bridge = "network = \"bridge\""
		const egress = "version: 1\nnetwork: {egress: [{domains: [example.com]}]}\n"
		if r := w.engine(t, dockerSkill(bridge), "", "s", "--", "look"); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Error(), ".skill-engine.toml:6:11: network.egress: a network is asked for") {
			t.Errorf("a bridge to nowhere: %v", r.Error)
		}
		for lines, layer := range map[string]string{
			bridge: "example.com", "network = \"none\"": "loopback only",
			bridge + "\n[skills.s.instances.default]\ncapabilities.network_access = false": "loopback only",
		} {
			r := w.engine(t, dockerSkill(lines), egress, "s", "--", "look")
			if has := r.Sandbox.Layers["network"] != "loopback only"; r.ExitCode != 0 || has != (layer != "loopback only") {
				t.Errorf("%s: network %q, %v", lines, r.Sandbox.Layers["network"], r.Error)
			}
		}
	})
}

func TestANativeSkillRunsItsProgram(t *testing.T) {
	inEachMode(t, func(t *testing.T, m mode) {
		w := &engineWorld{mode: m, dir: m.dir(t), env: []string{"TOKEN=t"}}
		skill := filepath.Join(w.dir, "skill")
		if err := os.MkdirAll(filepath.Join(w.dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		m.own(t, filepath.Join(w.dir, "data"))
		if err := os.Mkdir(skill, 0o755); err != nil {
			t.Fatal(err)
		}
		m.write(t, filepath.Join(skill, "SKILL.md"), "---\nname: echo\ndescription: d\n---\n", 0o644)
		manifest := filepath.Join(w.dir, "m.toml")
		m.write(t, manifest, `[skills.echo]
source = "./skill"
runtime = "native"
[skills.sh]
source = "./skill"
runtime = "native"
default_instance = "main"
[skills.sh.instances.main]
config.region = "${NO:-eu}"
env.KEY = "${TOKEN}"
capabilities.allowed_paths = ["data", "/tmp"]
[skills.web]
source = "./skill"
[skills.git]
source = "github:org/repo"
runtime = "native"
`, 0o644)
		r := w.exec(t, "--json", "--manifest", manifest, "echo", "--", "get", "pods", "n=kube", "output=json", "all=true", "watch=false", "resource=x y")
		if r.Stdout != "get pods -n kube --output json --all x y\n" {
			t.Errorf("%d, %v: %q %s", r.ExitCode, r.Error, r.Stdout, r.Stderr)
		}
		r = w.exec(t, "--json", "--manifest", manifest, "sh", "--", "-c", "echo $SKILL_REGION $KEY; pwd; ls; touch /data/data/made; ls "+w.dir)
		if _, err := os.Stat(filepath.Join(w.dir, "data", "made")); err != nil || r.Stdout != "eu t\n/skill\nSKILL.md\n" {
			t.Errorf("%v, %v: %q %s", err, r.Error, r.Stdout, r.Stderr)
		}
		if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, "is shown at /data/data") || !strings.Contains(text, "/tmp is the sandbox's own") {
			t.Errorf("warnings: %s", text)
		}
		for skill, want := range map[string]string{"web": "runtime wasm is not run here", "git": "nothing is fetched here", "none": `no skill "none"`, "sh@x": `no instance "x"`} {
			if r := w.exec(t, "--json", "--manifest", manifest, skill, "--", "x"); r.ExitCode != helper.CodeFailed || !strings.Contains(r.Error.Message, want) {
				t.Errorf("%s: %v, want %s", skill, r.Error, want)
			}
		}
	})
}
