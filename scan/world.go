package scan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skillbox/policy"
)

// world is what a skill finds in its box: nothing of it is real.
type world struct {
	command []string      // "" is the bundle's own
	home    string        // directory on the host, seen as homeDir
	binds   []policy.Bind // directories in the place of those that the policy shows
	names   []string      // variables that hold canaries
	secrets []string      // names in /run/secrets
	timeout time.Duration
}

// policyText writes the policy of a run under observation. Of the declared policy it takes what the skill needs to work at all, and nothing of
// the host's: base, system calls and limits.
func (w *world) policyText(declared *policy.Policy) string {
	var b strings.Builder
	line := func(format string, values ...any) {
		for i, v := range values {
			text, _ := json.Marshal(v) // strings, numbers and lists of them; YAML reads JSON
			values[i] = text
		}
		fmt.Fprintf(&b, format+"\n", values...)
	}
	line("version: 1")
	line("name: scan")
	line("enforcement: %s", declared.Enforcement)
	if len(w.command) > 0 {
		line("command: %s", w.command)
	}
	line("rootfs: {base: %s, bundle: copy-on-write}", declared.Rootfs.Base)
	line("filesystem:")
	line("  write:")
	line("    - {host: %s, path: %s, dangerous: true}", w.home, homeDir)
	for _, bind := range w.binds {
		line("    - {host: %s, path: %s, dangerous: true}", bind.Host, bind.Path)
	}
	line("env:")
	line("  set: %s", w.variables(declared))
	line("  pass: %s", orNone(w.names))
	line("  secrets: %s", orNone(w.secrets))
	line("network:")
	line("  sinkhole: true")
	line("  limits: {bytes: 64Mi, connections: 4096, rate: 1000}") // what is refused is not heard
	rules := func(key string, list []policy.Rule) {
		for i, rule := range list {
			if i == 0 {
				line("  " + key + ":")
			}
			fmt.Fprintf(&b, "    - %s\n", rule)
		}
	}
	rules("egress", declared.Network.Egress)
	rules("deny", declared.Network.Deny)
	line("resources:")
	line("  output_overflow: truncate")
	// A limit that is named is an error where this machine cannot hold it to the byte; what is left out is held as well as it can be.
	for _, key := range []struct {
		name  string
		value any
	}{
		{"cpu", declared.Resources.CPU},
		{"memory", policy.FormatSize(declared.Resources.Memory)},
		{"pids", declared.Resources.Pids},
		{"open_files", declared.Resources.OpenFiles},
		{"output", policy.FormatSize(declared.Resources.Output)},
	} {
		if declared.Named("resources." + key.name) {
			line("  "+key.name+": %s", key.value)
		}
	}
	line("timeout: %s", fmt.Sprintf("%dms", w.timeout.Milliseconds()))
	line("syscalls:")
	line("  profile: %s", declared.Syscalls.Profile)
	line("  allow: %s", orNone(declared.Syscalls.Allow))
	line("audit: {syscalls: security, files: all}")
	return b.String()
}

func (w *world) variables(declared *policy.Policy) map[string]string {
	set := map[string]string{"USER": "user", "LOGNAME": "user"}
	maps.Copy(set, declared.Env.Set)
	set["HOME"] = homeDir
	for _, name := range append(slices.Clone(w.names), w.secrets...) {
		delete(set, name)
	}
	return set
}

// orNone is a list that JSON writes as one also where it is empty.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
