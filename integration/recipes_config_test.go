//go:build linux

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// mcpServer answers what every client asks first, and one tool.
const mcpServer = `
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if ask["method"] == "initialize":
        result = {"protocolVersion": ask["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    elif ask["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif ask["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": ask["params"]["arguments"]["text"]}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], "result": result}), flush=True)
`

func TestHostRecipeOfAnMCPClient(t *testing.T) {
	leavesNothing(t)
	s, dir := rootless.kitchen(t, "mcp")
	s.mode.write(t, filepath.Join(dir, "server.py"), mcpServer, 0o644)
	s.mode.write(t, filepath.Join(dir, "mcp.yaml"), "version: 1\nname: mcp\n", 0o644)
	text := recipe(t, "mcp")["mcp.json"]
	text = strings.NewReplacer("/srv/mcp/echo", dir, "/srv/policies/mcp.yaml", filepath.Join(dir, "mcp.yaml")).Replace(text)
	var config struct {
		Servers map[string]struct {
			Command string
			Args    []string
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil || config.Servers["echo"].Command != "skillbox" {
		t.Fatalf("%v: %s", err, text)
	}
	c := s.mode.command(config.Servers["echo"].Args...)
	c.Env = append(c.Env, s.env()...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for ask, wants := range pairs(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"serverInfo"`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `"echo"`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`, `"text": "hello"`,
	) {
		if _, err := io.WriteString(in, ask+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), wants) {
			t.Errorf("%s: %q, %v, %s", ask, lines.Text(), lines.Err(), errs.String())
		}
	}
	if err := errors.Join(in.Close(), c.Wait()); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// pairs goes through what is asked and what is wanted, in order.
func pairs(all ...string) func(func(string, string) bool) {
	return func(yield func(string, string) bool) {
		for pair := range slices.Chunk(all, 2) {
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}
}

func TestHostRecipeOfAUnitIsUnderstood(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		needs(t, "systemd-analyze", err)
	}
	unit := recipe(t, "systemd")["agent-host.service"]
	path := filepath.Join(t.TempDir(), "agent-host.service")
	asRoot.write(t, path, strings.Replace(unit, "/usr/bin/agent-host", "/usr/bin/true", 1), 0o644)
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		// systemd before 254; and units of the machine's own.
		if !strings.Contains(line, "DelegateSubgroup") && strings.Contains(line, "agent-host") {
			t.Errorf("%s", line)
		}
	}
	if err != nil && !strings.Contains(string(out), "agent-host") {
		needs(t, "systemd-analyze", err) // it could not look at the unit at all
	}
	for _, line := range []string{"User=agent", "Delegate=yes"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	// What the page says not to use.
	page, err := os.ReadFile("../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| not in the unit | because |")
	table, _, _ = strings.Cut(table, "\n\n")
	names := regexp.MustCompile("`([A-Za-z]+)=").FindAllStringSubmatch(table, -1)
	if len(names) < 10 {
		t.Errorf("only %d settings are named", len(names))
	}
	for _, name := range names {
		if strings.Contains(unit, "\n"+name[1]+"=") {
			t.Errorf("the unit sets %s", name[1])
		}
	}
}

// flags are those of an engine's command line, in the words of docs/hosts.md and doctor.
func flags(text string) []string {
	return strings.Fields(strings.ReplaceAll(text, "--security-opt ", "--security-opt="))
}

// A job's options give what TestNestedCallsServicesAndSessions runs in: no filter, nothing over /proc, an ordinary user, a name that tells nothing.
func TestHostRecipeOfAJobIsWhatWasTried(t *testing.T) {
	var job struct {
		Jobs map[string]struct {
			Container struct{ Image, Options string }
			Steps     []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(recipe(t, "actions")["workflow.yaml"]), &job); err != nil {
		t.Fatal(err)
	}
	options := flags(strings.ReplaceAll(strings.ReplaceAll(job.Jobs["skills"].Container.Options, "--user ", "--user="), "--hostname ", "--hostname="))
	want := []string{"--user=1001:1001", "--hostname=server", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--security-opt=systempaths=unconfined"}
	if !slices.Equal(options, want) {
		t.Errorf("%q", options)
	}
}

func TestHostRecipeOfAPodIsWhatWasTried(t *testing.T) {
	var pod struct {
		Kind string
		Spec struct {
			HostUsers       *bool  `yaml:"hostUsers"`
			Hostname        string `yaml:"hostname"`
			SecurityContext struct {
				RunAsUser    int  `yaml:"runAsUser"`
				RunAsNonRoot bool `yaml:"runAsNonRoot"`
			} `yaml:"securityContext"`
			Containers []struct {
				SecurityContext struct {
					AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
					Privileged               bool
					Capabilities             struct{ Add, Drop []string }
					ProcMount                string                `yaml:"procMount"`
					SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
				} `yaml:"securityContext"`
				Env []struct{ Name, Value string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(recipe(t, "pod")["pod.yaml"]), &pod); err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0].SecurityContext
	tried := nestable()["a user with no_new_privs and no capability"]
	switch {
	case pod.Kind != "Pod" || pod.Spec.HostUsers == nil || *pod.Spec.HostUsers:
		t.Error("procMount: Unmasked takes a user namespace of the pod's own")
	case pod.Spec.Hostname != tried.Hostname || pod.Spec.SecurityContext.RunAsUser != tried.UID || !pod.Spec.SecurityContext.RunAsNonRoot:
		t.Errorf("%+v", pod.Spec)
	case c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || !tried.NoNewPrivs || c.Privileged:
		t.Errorf("%+v", c)
	case len(c.Capabilities.Add) != 0 || !slices.Equal(c.Capabilities.Drop, []string{"ALL"}) || len(tried.Caps) != 0:
		t.Errorf("%+v", c.Capabilities)
	case c.ProcMount != "Unmasked" || !tried.Unmasked:
		t.Errorf("%+v", c)
	}
}
