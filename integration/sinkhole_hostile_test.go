//go:build linux

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skillbox/audit"
	"skillbox/helper"
)

// hostile are the names of the skills below integration/hostile, with the rules that they are to be found by.
func hostile(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("hostile/*/expected.json")
	if err != nil || len(files) < 13 {
		t.Fatalf("%v %v", files, err)
	}
	all := map[string][]string{}
	for _, file := range files {
		var expected struct {
			Rules []string
			Why   string
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &expected)
		}
		if err != nil || len(expected.Rules) == 0 || expected.Why == "" {
			t.Fatalf("%s: %v %+v", file, err, expected)
		}
		all[filepath.Base(filepath.Dir(file))] = expected.Rules
	}
	return all
}

// What a hostile skill sends is on record, and nobody gets it. Those that wait for a day or for a machine send nothing yet.
func TestHostileSkillsTalkToASinkhole(t *testing.T) {
	said := map[string]string{
		"exfil-http": "POST /v1/ingest HTTP/1.1", "exfil-tcp": `\u0001\u0000LOOTAPI_TOKEN=a-canary`, "env-and-dotfile-theft": `{"env": {"API_TOKEN": "a-canary"}`,
		"miner": `{"id": 1, "method": "mining.subscribe"`, "obfuscated-eval": "GET /payload HTTP/1.1", "curl-pipe-sh": "GET /setup HTTP/1.1",
		"metadata-read": "PUT /latest/api/token HTTP/1.1", "reverse-shell": "",
	}
	inTheWorld(t, func(t *testing.T, w *world) {
		for _, y := range sinkable(ways()) {
			for name, rules := range hostile(t) {
				t.Run(y.String()+"/"+name, func(t *testing.T) {
					leavesNothing(t)
					w.leavesNothing(t)
					w.forget()
					bundle := y.mode.dir(t)
					if err := os.CopyFS(bundle, os.DirFS(filepath.Join("hostile", name))); err != nil {
						t.Fatal(err)
					}
					policy := "version: 1\nnetwork: {sinkhole: true, limits: {rate: 1000}}\nenv: {set: {API_TOKEN: a-canary}}\naudit: {syscalls: security, files: all}\n"
					r := w.run(t, y, call{mode: y.mode, bundle: bundle, policy: policy, stdin: "a text\n"})
					if r.Verdict != helper.Exited && !slices.Contains(rules, "SKILLBOX_RESOURCE_ABUSE") {
						t.Errorf("%s: %v %s", r.Verdict, r.Error, r.Stderr)
					}
					w.only(t)
					if asked := w.asked(); len(asked) > 0 {
						t.Errorf("questions left the box: %q", asked)
					}
					records := recorded(t, y.mode, r.ID)
					undeclared := slices.Contains(rules, "SKILLBOX_EGRESS_UNDECLARED") && name != "time-bomb"
					denied := func(o audit.Outcome) bool {
						return o.Layer == "sinkhole" && o.Verdict == audit.Denied && o.Remedy != ""
					}
					names, connections := details[audit.DNS](records), details[audit.Connection](records)
					if undeclared && !slices.ContainsFunc(names, func(d audit.DNS) bool { return denied(d.Outcome) }) &&
						!slices.ContainsFunc(connections, func(c audit.Connection) bool { return denied(c.Outcome) }) {
						t.Errorf("no record shows it: %+v %+v", names, connections)
					}
					if want, sends := said[name]; sends && !slices.ContainsFunc(connections, func(c audit.Connection) bool { return strings.Contains(c.FirstBytes, want) }) {
						t.Errorf("%q was not heard: %+v", want, connections)
					}
				})
			}
		}
	})
}
