package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skillbox/helper"
)

func checked(t *testing.T, text string) helper.PolicyChecked {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	document, err := plain(&helper.Request{Op: helper.OpPolicyCheck, PolicyName: "p.yaml"}, &files{policy: f})
	if err != nil {
		t.Fatal(err)
	}
	var answer helper.PolicyChecked
	if err := json.Unmarshal(document, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestAllErrorsOfAPolicyAreListedInTheOrderOfTheFile(t *testing.T) {
	got := checked(t, "version: 1\ntimeuot: 3s\nresources: {memory: lots}\nenv: {pass: [1BAD]}\n")
	var lines []string
	for _, e := range got.Errors {
		lines = append(lines, e.Error())
	}
	if got.Valid || len(lines) != 3 {
		t.Fatalf("%v", lines)
	}
	for i, want := range []string{"p.yaml:2:1: unknown key \"timeuot\"", "p.yaml:3:21: resources.memory: ", "p.yaml:4:"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("got %q, want %q…", lines[i], want)
		}
	}
}

func TestSystemCallsOfAPolicyAreCheckedToo(t *testing.T) {
	got := checked(t, "version: 1\nsyscalls:\n  allow:\n    - getpidd\n    - bpf\n")
	if got.Valid || len(got.Errors) != 2 || got.Errors[0].Line != 4 || got.Errors[1].Line != 5 {
		t.Errorf("%+v", got.Errors)
	}
}

func TestAGoodPolicyIsPrintedWithItsDefaults(t *testing.T) {
	got := checked(t, "version: 1\n")
	if !got.Valid || got.Errors == nil || len(got.Errors) != 0 || !strings.Contains(got.Policy, "timeout: 30s") || got.Digest == "" {
		t.Errorf("%+v", got)
	}
}

func TestWhatInitWritesIsGoodAndTheSchemaIsJSON(t *testing.T) {
	text := func(op string) string {
		document, err := plain(&helper.Request{Op: op}, &files{})
		if err != nil {
			t.Fatal(err)
		}
		var answer helper.Text
		if err := json.Unmarshal(document, &answer); err != nil {
			t.Fatal(err)
		}
		return answer.Text
	}
	if got := checked(t, text(helper.OpPolicyInit)); !got.Valid {
		t.Errorf("%v", got.Errors)
	}
	if !json.Valid([]byte(text(helper.OpPolicySchema))) {
		t.Error("the schema is not JSON")
	}
}

func TestOnlyPlainOperationsAreAnsweredWithoutNamespaces(t *testing.T) {
	for _, op := range []string{helper.OpExec, helper.OpPlan, "", "reboot"} {
		if helper.Plain(op) {
			t.Errorf("%q is plain", op)
		}
		if _, err := plain(&helper.Request{Op: op}, &files{}); err == nil {
			t.Errorf("%q was answered", op)
		}
	}
}
