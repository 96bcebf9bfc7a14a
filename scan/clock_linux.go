package scan

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"skillbox/helper"
)

var ahead = regexp.MustCompile(`^\+?([0-9]{1,5})d$`)

// ParseClock reads by how much the clock is to be ahead: +30d, or as time.ParseDuration. "" is 0.
func ParseClock(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if m := ahead.FindStringSubmatch(text); m != nil {
		days, err := strconv.Atoi(m[1])
		return time.Duration(days) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, &helper.Error{Message: fmt.Sprintf("--clock %q is no time to be ahead by", text), Hint: "such as +30d or 36h"}
	}
	return d, nil
}

// fakers are where distributions install libfaketime. Every base that shows the host's /usr has it in the same place.
var fakers = []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib64/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1"}

// faketime returns the library that moves a program's clock.
func faketime() (string, error) {
	for _, pattern := range fakers {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("scan: %w", err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", &helper.Error{Message: "the clock cannot be moved: libfaketime is not installed", Hint: "apt-get install libfaketime, dnf install libfaketime, or scan without --clock"}
}

// later starts a command with its clock ahead.
func later(library string, by time.Duration, argv []string) []string {
	return append([]string{
		"/usr/bin/env", "LD_PRELOAD=" + library, fmt.Sprintf("FAKETIME=+%d", int64(by/time.Second)),
		// Time-outs go by a clock of their own, and shared memory would be seen.
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1",
	}, argv...)
}

// onlyThen keeps of a run with the clock ahead what the run of today did not show, and adds what that means.
func onlyThen(today, then []Finding, clock time.Duration) (all []Finding) {
	for _, f := range then {
		if slices.ContainsFunc(today, func(t Finding) bool { return t.Rule == f.Rule && t.Description == f.Description }) {
			continue
		}
		all = append(all, f)
		if f.Severity <= Low {
			continue
		}
		rule := ruleOf(TimeBomb)
		all = append(all, Finding{
			Rule: TimeBomb, Severity: max(rule.Severity, f.Severity), Category: rule.Category, Title: rule.Title, Remediation: rule.Remediation,
			Description: fmt.Sprintf("With the clock %s ahead: %s", days(clock), f.Description),
			File:        f.File, Line: f.Line, Snippet: f.Snippet, Run: f.Run, Evidence: f.Evidence, Count: 1,
		})
	}
	return all
}

func days(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.String()
}
