package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOneSkillHubRowForEachRunHasExactlyTheTablesColumns(t *testing.T) {
	dir := t.TempDir() + "/audit"
	l := open(t, dir, quick)
	one, two := run("one"), run("two")
	add(t, l, one[0], two[0], one[1], two[1], one[2], two[2], one[3])
	add(t, l, Event{Detail: Refused{Message: "no bundle"}}, Event{Detail: Refused{Message: "no policy"}})
	shut(t, l)
	var verdicts, requests []string
	for r, err := range Runs(Read(dir, Query{})) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r.SkillHub())
		if err != nil {
			t.Fatal(err)
		}
		var row map[string]any
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		want := []string{"action", "actor_user_id", "client_ip", "created_at", "detail_json", "request_id", "target_id", "target_type", "user_agent"}
		if got := slices.Sorted(maps.Keys(row)); !slices.Equal(got, want) {
			t.Errorf("%v", got)
		}
		detail := row["detail_json"].(map[string]any)
		verdicts, requests = append(verdicts, detail["verdict"].(string)), append(requests, row["request_id"].(string))
		if r.ID != "" && (row["actor_user_id"] != "1000" || detail["denials"].(map[string]any)["dns"] != 1.0) {
			t.Errorf("%s", text)
		}
	}
	if !slices.Equal(verdicts, []string{"exited", "refused", "refused", ""}) || !slices.Equal(requests, []string{"one", "", "", "two"}) {
		t.Errorf("%v %v", verdicts, requests)
	}
	s, err := Count(Read(dir, Query{}))
	if err != nil || s.Runs != 4 || s.Verdicts["refused"] != 2 || s.Verdicts["unknown"] != 1 || s.Denials["dns"] != 2 || s.Skills["word-count"] != 2 || s.Records != 11 {
		t.Errorf("%+v %v", s, err)
	}
}

func TestEachKindHasItsClassInOCSF(t *testing.T) {
	classes := map[Kind]int{ExecKind: 1007, FileKind: 1001, SyscallKind: 1003, DNSKind: 4003, ConnKind: 4001}
	for _, e := range filled("x") {
		var clean Event
		if err := complete(&e, &clean, "host", time.Now(), boottime()); err != nil {
			t.Fatal(err)
		}
		o := clean.OCSF()
		class := classes[clean.Kind]
		if class == 0 {
			class = 6002
		}
		if o["class_uid"] != class || o["category_uid"] != class/1000 || o["type_uid"] != class*100+o["activity_id"].(int) {
			t.Errorf("%s: %v", clean.Kind, o)
		}
		if clean.Outcome() != nil && (o["disposition_id"] != 2 || o["severity_id"] != 3) {
			t.Errorf("%s: a denial is %v", clean.Kind, o)
		}
		if text, err := json.Marshal(o); err != nil || clean.Summary() == "" {
			t.Errorf("%s: %s %v", clean.Kind, text, err)
		}
	}
}

// requiredInOCSF is what version 1.3.0 demands of each class that is used, and of their objects (schema.ocsf.io/1.3.0).
var requiredInOCSF = map[int][]string{
	0:    {"activity_id", "category_uid", "class_uid", "metadata.product.vendor_name", "metadata.version", "severity_id", "time", "type_uid", "device.type_id"},
	1001: {"actor.process.pid", "file.name", "file.type_id"},
	1003: {"actor.process.pid", "kernel.name", "kernel.type_id"},
	1007: {"actor.process.pid", "process.pid"},
	4001: {"dst_endpoint", "connection_info.direction_id"},
	4003: {"query.hostname"},
	6002: {"app.vendor_name", "app.name"},
}

// activitiesOfOCSF are the numbers that each class has, besides 99.
var activitiesOfOCSF = map[int][]int{1001: {1, 3, 4, 5, 7, 14}, 1003: {4}, 1007: {1}, 4001: {1, 4, 5, 6}, 4003: {1, 6}, 6002: {3, 4}}

func TestOCSFEventsHaveWhatTheirClassesDemand(t *testing.T) {
	var all []Event
	for _, e := range append(append(filled("x"), run("one")...), Event{Detail: Refused{Message: "no bundle", Outcome: Outcome{Verdict: Denied}}},
		Event{Detail: Connection{Op: "connect", Proto: "unix", Address: "/run/x", Outcome: Outcome{Verdict: Failed}}}, Event{Detail: DNS{Name: "a.example", Addresses: []string{"192.0.2.1"}, Outcome: Outcome{Verdict: Allowed}}}) {
		var clean Event
		if err := complete(&e, &clean, "host", time.Now(), boottime()); err != nil {
			t.Fatal(err)
		}
		all = append(all, clean)
	}
	for _, e := range append(all, Event{Kind: LogOpened, Detail: Opened{}}, Event{Kind: LogCheckpoint, Detail: Checkpoint{}}, Event{Kind: LogUndelivered, Detail: Undelivered{}}) {
		text, err := json.Marshal(e.OCSF())
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		class, activity := int(o["class_uid"].(float64)), int(o["activity_id"].(float64))
		for _, path := range append(requiredInOCSF[0], requiredInOCSF[class]...) {
			var at any = o
			for _, key := range strings.Split(path, ".") {
				inner, _ := at.(map[string]any)
				at = inner[key]
			}
			if at == nil && !(strings.HasPrefix(path, "actor") && e.Caller == nil) {
				t.Errorf("%s has no %s: %s", e.Kind, path, text)
			}
		}
		if int(o["type_uid"].(float64)) != class*100+activity || int(o["category_uid"].(float64)) != class/1000 || !slices.Contains(activitiesOfOCSF[class], activity) && (activity != 99 || o["activity_name"] == nil) {
			t.Errorf("%s: %s", e.Kind, text)
		}
		profiles := fmt.Sprint(o["metadata"].(map[string]any)["profiles"])
		if _, decided := o["action_id"]; decided != strings.Contains(profiles, "security_control") {
			t.Errorf("%s: %s with action_id %v", e.Kind, profiles, o["action_id"])
		}
		if to, _ := o["dst_endpoint"].(map[string]any); to != nil && to["ip"] != nil {
			if _, err := netip.ParseAddr(to["ip"].(string)); err != nil {
				t.Errorf("%v", to)
			}
		}
	}
}
