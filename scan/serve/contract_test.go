package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skillbox/audit"
	"skillbox/bundle/unzip/ziptest"
	"skillbox/scan"
	"skillbox/scan/serve"
)

// fields are the API's, with the types that JSON has for them.
func fields(t *testing.T, what string, body map[string]any, want map[string]string) {
	t.Helper()
	for name, kind := range want {
		value, there := body[name]
		if is := fmt.Sprintf("%T", value); !there || !strings.Contains(kind, is) {
			t.Errorf("%s: %s is %v (%s), want %s", what, name, value, is, kind)
		}
	}
}

var answerFields = map[string]string{
	"scan_id": "string", "skill_name": "string", "is_safe": "bool", "max_severity": "string", "findings_count": "float64",
	"findings": "[]interface {}", "scan_duration_seconds": "float64", "timestamp": "string",
}

var findingFields = map[string]string{
	"id": "string", "rule_id": "string", "severity": "string", "category": "string", "title": "string", "description": "string",
	"file_path": "string or <nil>", "line_number": "float64 or <nil>", "snippet": "string or <nil>", "remediation": "string", "analyzer": "string",
	"metadata": "map[string]interface {}",
}

func TestHealth(t *testing.T) {
	var broken error
	s := start(t, serve.Config{Version: "1.2.3", Check: func(context.Context) error { return broken }})
	a := s.get("/health")
	if a.status != 200 || a.body["status"] != "healthy" || a.body["version"] != "1.2.3" {
		t.Errorf("%d %v", a.status, a.body)
	}
	broken = fmt.Errorf("newuidmap is missing: install uidmap")
	sick := start(t, serve.Config{Check: func(context.Context) error { return broken }})
	if a := sick.get("/health"); a.status != 503 || a.body["status"] != "unhealthy" || !strings.Contains(fmt.Sprint(a.body["detail"]), "install uidmap") {
		t.Errorf("%d %v", a.status, a.body)
	}
}

func TestAnUploadIsAnsweredWithTheContractsFields(t *testing.T) {
	found := scan.Finding{
		Rule: "SKILLBOX_SECRET_EXFIL", Severity: scan.Critical, Category: "exfiltration", Title: "A secret left", Description: "It sent one.", Remediation: "Do not.",
		File: "run.py", Line: 7, Snippet: "<script>", Run: "r1", Count: 3,
		Evidence: []audit.Record{{Event: audit.Event{Run: "r1", Detail: audit.Connection{Op: "connect", Name: "evil.example"}}}},
	}
	s := start(t, serve.Config{Scan: func(context.Context, string, serve.Options) (*scan.Report, error) {
		return &scan.Report{Skill: audit.Skill{Name: "thief"}, Findings: []scan.Finding{found, found, {Rule: "SKILLBOX_X", Severity: scan.Info}}, Unobserved: []string{"time was not moved"}}, nil
	}})
	began := time.Now()
	a := s.upload(skill("NONE"), "use_behavioral=true", "use_llm=true", "llm_provider=anthropic")
	if a.status != 200 {
		t.Fatalf("%d %v", a.status, a.body)
	}
	fields(t, "answer", a.body, answerFields)
	list := a.body["findings"].([]any)
	for _, f := range list {
		fields(t, "finding", f.(map[string]any), findingFields)
	}
	if a.body["is_safe"] != false || a.body["max_severity"] != "CRITICAL" || a.body["findings_count"] != 3.0 || len(list) != 3 || a.body["skill_name"] != "thief" {
		t.Errorf("%v", a.body)
	}
	if id := a.body["scan_id"].(string); !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("scan_id %q is no UUID", id)
	}
	when, err := time.Parse(time.RFC3339, a.body["timestamp"].(string))
	if err != nil || when.Before(began.Add(-time.Second)) || when.After(time.Now()) {
		t.Errorf("timestamp %v, %v", when, err)
	}
	first, second, third := list[0].(map[string]any), list[1].(map[string]any), list[2].(map[string]any)
	if first["file_path"] != "run.py" || first["line_number"] != 7.0 || first["snippet"] != "<script>" || first["analyzer"] != "skillbox-runtime" || first["rule_id"] != found.Rule {
		t.Errorf("%v", first)
	}
	if first["id"] == second["id"] || first["id"] == third["id"] {
		t.Errorf("two findings have the id %v", first["id"])
	}
	if meta := first["metadata"].(map[string]any); meta["run"] != "r1" || meta["count"] != 3.0 || !strings.Contains(fmt.Sprint(meta["evidence"]), "evil.example") {
		t.Errorf("%v", meta)
	}
	about := a.body["scan_metadata"].(map[string]any)
	fields(t, "scan_metadata", about, map[string]string{"fail_on": "string", "runs": "float64", "compared": "[]interface {}", "unobserved": "[]interface {}", "left_out": "[]interface {}", "ignored_options": "[]interface {}", "incomplete": "[]interface {}"})
	if about["fail_on"] != "MEDIUM" || fmt.Sprint(about["ignored_options"]) != "[llm_provider use_llm]" || fmt.Sprint(about["unobserved"]) != "[time was not moved]" {
		t.Errorf("%v", about)
	}
}

func TestIsSafeMeansNothingAtFailOn(t *testing.T) {
	for _, c := range []struct {
		failOn  scan.Severity
		finding string
		safe    bool
		worst   string
	}{
		{scan.None, "NONE", true, "SAFE"},
		{scan.None, "INFO", true, "INFO"},
		{scan.None, "LOW", true, "LOW"},
		{scan.None, "MEDIUM", false, "MEDIUM"},
		{scan.None, "CRITICAL", false, "CRITICAL"},
		{scan.Critical, "HIGH", true, "HIGH"},
		{scan.Critical, "CRITICAL", false, "CRITICAL"},
		{scan.Info, "NONE", true, "SAFE"},
		{scan.Info, "INFO", false, "INFO"},
	} {
		s := start(t, serve.Config{FailOn: c.failOn})
		if a := s.upload(skill(c.finding)); a.status != 200 || a.body["is_safe"] != c.safe || a.body["max_severity"] != c.worst {
			t.Errorf("fail-on %s, %s: %d %v", c.failOn, c.finding, a.status, a.body)
		}
	}
}

// A skill of which a part was not seen is not safe, and one that was found out is answered about all the same.
func TestNothingThatWasScannedInPartIsSafe(t *testing.T) {
	s := start(t, serve.Config{Scan: func(ctx context.Context, dir string, o serve.Options) (*scan.Report, error) {
		r, err := judge(ctx, dir, o)
		r.Incomplete = []string{"61 ways to start the skill were not tried."}
		return r, err
	}})
	for _, finding := range []string{"NONE", "INFO", "LOW"} {
		if a := s.upload(skill(finding)); a.status != 422 || a.body["is_safe"] != false || !strings.Contains(fmt.Sprint(a.body["detail"]), "61 ways") {
			t.Errorf("%s: %d %v", finding, a.status, a.body)
		}
	}
	a := s.upload(skill("HIGH"))
	if meta, _ := a.body["scan_metadata"].(map[string]any); a.status != 200 || a.body["is_safe"] != false || !strings.Contains(fmt.Sprint(meta["incomplete"]), "61 ways") {
		t.Errorf("%d %v", a.status, a.body)
	}
}

func TestParallelScansDoNotMix(t *testing.T) {
	verdicts := []string{"NONE", "INFO", "LOW", "MEDIUM", "HIGH", "CRITICAL", "LOW", "HIGH"}
	var all sync.WaitGroup
	all.Add(len(verdicts)) // each waits until all are under way
	s := start(t, serve.Config{Parallel: len(verdicts), Scan: func(ctx context.Context, dir string, o serve.Options) (*scan.Report, error) {
		all.Done()
		all.Wait()
		return judge(ctx, dir, o)
	}})
	var done sync.WaitGroup
	for i, verdict := range verdicts {
		r := s.form(skill(verdict), fmt.Sprintf("skill-%d.zip", i))
		done.Go(func() {
			a, err := do(r)
			worst := strings.Replace(verdict, "NONE", "SAFE", 1)
			if err != nil || a.body["max_severity"] != worst || a.body["skill_name"] != fmt.Sprintf("skill-%d.zip+%s", i, verdict) || a.body["is_safe"] != slices.Contains([]string{"SAFE", "INFO", "LOW"}, worst) {
				t.Errorf("%d, %s: %v %v", i, verdict, a, err)
			}
		})
	}
	done.Wait()
}

func TestCurlUploads(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	s := start(t, serve.Config{})
	path := filepath.Join(t.TempDir(), "skill.zip")
	if err := os.WriteFile(path, skill("HIGH"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("curl", "-sS", "-F", "file=@"+path, "-F", "use_llm=false", s.url+"/scan-upload?policy=strict").Output()
	if err != nil || !strings.Contains(string(out), `"max_severity":"HIGH"`) || !strings.Contains(string(out), `"is_safe":false`) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestDirectoriesOfTheMachine(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(root, "a"), filepath.Join(root, "none"), outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if filepath.Base(dir) == "none" {
			continue
		}
		for name, text := range map[string]string{"SKILL.md": "---\nname: x\ndescription: y\n---\n", "verdict": "LOW"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, to := range map[string]string{"in": filepath.Join(root, "a"), "out": outside, "up": "../", "self": "/proc/self/cwd"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, serve.Config{Roots: []string{root}})
	ask := func(dir string) answered {
		name, err := json.Marshal(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s.post("/scan", fmt.Sprintf(`{"skill_directory":%s,"use_behavioral":true}`, name))
	}
	for _, good := range []string{"/a", "/a/", "/none/../a", "/in"} {
		if a := ask(root + good); a.status != 200 || a.body["max_severity"] != "LOW" || a.body["is_safe"] != true {
			t.Errorf("%s: %d %v", good, a.status, a.body)
		}
	}
	for dir, want := range map[string]struct {
		status int
		why    string
	}{
		outside: {403, "--root"}, root + "/out": {403, "--root"}, root + "/up": {403, "--root"}, root + "/self": {403, "--root"}, root + "/../..": {403, "--root"}, "/": {403, "--root"},
		root + "-not": {403, "--root"}, outside + "/not": {403, "--root"}, "/proc/self/root" + outside: {403, "--root"},
		root + "/not": {404, "no such file"}, root + "/a/SKILL.md": {400, "not a directory"}, root + "/none": {400, "has no SKILL.md"},
		"a": {422, "absolute"}, "": {422, "skill_directory"}, root + "/a\x00": {422, "absolute"},
	} {
		ask(dir).isError(t, want.status, want.why)
	}
	s.post("/scan", `{"skill_directory":7}`).isError(t, 422, "skill_directory")
	s.post("/scan", `[]`).isError(t, 422, "JSON object")
	s.post("/scan", `null`).isError(t, 422, "JSON object")
	s.post("/scan", `{`).isError(t, 422, "JSON object")
	s.post("/scan", `{"x":"`+strings.Repeat("x", 70_000)+`"}`).isError(t, 413, "65536 bytes")
	start(t, serve.Config{}).post("/scan", fmt.Sprintf(`{"skill_directory":%q}`, root)).isError(t, 403, "start it with --root")
}

func TestMalformedZipsAre4xxWithAReason(t *testing.T) {
	s := start(t, serve.Config{Scan: func(context.Context, string, serve.Options) (*scan.Report, error) {
		t.Error("it was scanned")
		return nil, nil
	}})
	bad := ziptest.All()
	if len(bad) < 30 {
		t.Errorf("only %d archives", len(bad))
	}
	for _, one := range bad {
		t.Run(one.Name, func(t *testing.T) {
			a := s.upload(one.Data)
			a.isError(t, 400, one.Why)
			if named := audit.Clean(one.Entry, 2000); !strings.Contains(fmt.Sprint(a.body["detail"]), named) && len(named) < 200 {
				t.Errorf("%v does not name %q", a.body["detail"], named)
			}
		})
	}
	s.nothingLeft()
}

func TestWhatIsNoSkillIs4xx(t *testing.T) {
	s := start(t, serve.Config{})
	file := func(name, text string) ziptest.Entry { return ziptest.Entry{Name: name, Data: []byte(text)} }
	const good = "---\nname: x\ndescription: y\n---\n"
	for why, c := range map[string]struct {
		status  int
		entries []ziptest.Entry
	}{
		"no SKILL.md":                     {400, []ziptest.Entry{file("README.md", "x")}},
		"has no SKILL.md, no skillbox":    {400, []ziptest.Entry{file("a/SKILL.md", good), file("b/SKILL.md", good)}},
		"no skillbox.yaml":                {400, []ziptest.Entry{file("a/b/SKILL.md", good)}},
		"it is no skill":                  {400, []ziptest.Entry{file("__MACOSX/SKILL.md", good)}},
		"manifest.yaml beside a skill.py": {400, []ziptest.Entry{file("manifest.yaml", "name: x")}},
		"has no frontmatter":              {422, []ziptest.Entry{file("SKILL.md", "# text\nsecurity_policy: {version: 1}")}},
		"must be 1":                       {422, []ziptest.Entry{file("d/skillbox.yaml", "version: 2\nname: x\n")}},
		"a policy twice":                  {422, []ziptest.Entry{file("skillbox.yaml", "version: 1\nname: x\nsecurity_policy: {version: 1}\n"), file("policy.yaml", "version: 1\n")}},
	} {
		s.upload(ziptest.Make(c.entries...)).isError(t, c.status, why)
	}
	folder := s.upload(ziptest.Make(file("my skill/SKILL.md", good), file("my skill/verdict", "HIGH"), file("__MACOSX/._my skill", "x")))
	if folder.status != http.StatusOK || folder.body["max_severity"] != "HIGH" || fmt.Sprint(folder.body["scan_metadata"].(map[string]any)["left_out"]) != "[__MACOSX]" {
		t.Errorf("a zip of one folder: %d %v", folder.status, folder.body)
	}
}
