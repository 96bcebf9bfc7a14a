package sandbox

import (
	"errors"
	"strings"
	"testing"

	"skillbox/cgroup"
	"skillbox/helper"
	"skillbox/policy"
)

// decided is what limit makes of a policy on a host with these controllers.
func decided(t *testing.T, h *Host, s Sources, text string) (*Plan, error) {
	t.Helper()
	plan := &Plan{Layers: map[string]string{}}
	return plan, plan.limit(h, parsed(t, "version: 1\n"+text), s)
}

func parsed(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var (
	noGroups = &Host{NoGroups: &cgroup.Unavailable{Message: "control groups are of version 1", Hint: "boot with version 2"}}
	complete = &Host{Controllers: []string{cgroup.CPU, cgroup.IO, cgroup.Memory, cgroup.Pids}, GroupsIn: "/skillbox.slice"}
	partial  = &Host{Controllers: []string{cgroup.Memory, cgroup.Pids}, GroupsIn: "/user.slice/u"}
)

func TestANamedLimitThatNothingCanPromiseIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, text, field, says string
		host                    *Host
	}{
		{"memory without groups", "resources: {memory: 64Mi}\n", "resources.memory", "version 1", noGroups},
		{"pids without groups", "resources: {pids: 9}\n", "resources.pids", "version 1", noGroups},
		{"cpu that is not delegated", "resources: {cpu: 0.5}\n", "resources.cpu", "/user.slice/u, has no cpu controller", partial},
		{"io that is not delegated", "resources: {io_read: 1Mi}\n", "resources.io_read", "no io controller", partial},
	} {
		_, err := decided(t, c.host, Sources{}, c.text)
		var r *Refusal
		if !errors.As(err, &r) || r.Field != c.field || !strings.Contains(r.Message, c.says) || r.Hint == "" || r.Position.Line != 2 {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestWhatHoldsALimitIsSaid(t *testing.T) {
	for _, c := range []struct {
		name, text string
		host       *Host
		layers     map[string]string
		warnings   []string
	}{
		{"all by groups", "resources: {memory: 64Mi}\n", complete, map[string]string{"memory": "cgroup", "cpu": "cgroup", "pids": "cgroup"}, nil},
		{"defaults without groups", "", noGroups, map[string]string{"memory": "watchdog", "cpu": "watchdog", "pids": "watchdog"}, []string{"cpu, memory, pids " + helper.LimitsWarning}},
		{"a default without its controller", "resources: {memory: 64Mi}\n", partial, map[string]string{"memory": "cgroup", "cpu": "watchdog"}, []string{"cpu " + helper.LimitsWarning}},
		{
			"best-effort", "enforcement: best-effort\nresources: {memory: 64Mi, io_weight: 10}\n", noGroups,
			map[string]string{"memory": "watchdog", "io_weight": "nothing"},
			[]string{"resources.memory is held by watchdog", "resources.io_weight is held by nothing", "cpu, pids "},
		},
	} {
		plan, err := decided(t, c.host, Sources{}, c.text)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for name, want := range c.layers {
			if !strings.HasPrefix(plan.Layers[name], want) {
				t.Errorf("%s: %s is held by %q", c.name, name, plan.Layers[name])
			}
		}
		all := strings.Join(plan.Warnings, "\n")
		if len(plan.Warnings) != len(c.warnings) {
			t.Errorf("%s: warnings %q", c.name, plan.Warnings)
		}
		for _, want := range c.warnings {
			if !strings.Contains(all, want) {
				t.Errorf("%s: no warning %q in %q", c.name, want, all)
			}
		}
	}
}

func TestALimitIsTheGroupsOrTheWatchdogs(t *testing.T) {
	const text = "enforcement: best-effort\ntimeout: 10s\nresources: {memory: 64Mi, pids: 7, cpu: 0.5}\n"
	plan, err := decided(t, partial, Sources{}, text)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Group.Memory != 64<<20 || plan.Group.Pids != 7 || plan.Group.CPU != 0 {
		t.Errorf("group: %+v", plan.Group)
	}
	if plan.Watched.Memory != 0 || plan.Watched.Pids != 0 || plan.Watched.CPU.Seconds() != 5 {
		t.Errorf("watched: %+v", plan.Watched)
	}
}

func TestALimitOnADiskNeedsADisk(t *testing.T) {
	disk := cgroup.Disk{Major: 259, Minor: 0}
	const text = "resources: {io_write: 1Mi}\n"
	plan, err := decided(t, complete, Sources{Disks: []cgroup.Disk{disk}}, text)
	if err != nil || plan.Group.IOWrite != 1<<20 || len(plan.Group.Disks) != 1 {
		t.Errorf("%+v, %v", plan.Group, err)
	}
	var r *Refusal
	if _, err := decided(t, complete, Sources{Disks: []cgroup.Disk{disk}, Diskless: []string{"/mnt/btrfs"}}, text); !errors.As(err, &r) || r.Field != "resources.io_write" || !strings.Contains(r.Message, "/mnt/btrfs") {
		t.Errorf("%v", err)
	}
	plan, err = decided(t, complete, Sources{Diskless: []string{"/mnt/btrfs"}}, "enforcement: best-effort\n"+text)
	if err != nil || len(plan.Warnings) != 1 {
		t.Errorf("%q, %v", plan.Warnings, err)
	}
}
