package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestSizesAreExact(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4096": 4096, "64Mi": 64 << 20, "10M": 10_000_000, "1k": 1000, "1Ki": 1024, "2Gi": 2 << 30, "1Ti": 1 << 40, "3T": 3e12, "8388607Ti": 8388607 << 40,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
		if again, err := ParseSize(FormatSize(got)); err != nil || again != got {
			t.Errorf("%s prints as %s", text, FormatSize(got))
		}
	}
	for _, text := range []string{"", "0", "0Mi", "-1", "+1", "1.5Gi", "64MB", "64MiB", "64mi", "1K", "1 Mi", "0x10", "1_000", "010", "9999999Ti", "99999999999999999999", "unlimited", "inf", "1e9"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, n)
		}
	}
}

func TestEveryFieldRefusesZeroAndWhatIsBeyondItsBounds(t *testing.T) {
	for _, c := range []struct{ field, good, bad string }{
		{"filesystem.tmp", "64Ki 64Gi 1M", "0 63Ki 65Gi -1 ~ unlimited [1] 1.5Mi true"},
		{"filesystem.home", "64Mi", "0"},
		{"filesystem.output", "64Mi", "0"},
		{"network.limits.bytes", "1Ki 1Ti", "0 1023 2Ti"},
		{"network.path", "auto veth capture", "none tap \"\" Auto"},
		{"network.limits.rate", "1 1000000", "0 -1 1000001 1.5"},
		{"network.limits.connections", "1 1000000", "0 -1 1000001 1.0 1e3 0x10 1_000 \"5\" 010"},
		{"resources.cpu", `0.01 1 0.5 1.50 1024 "500m" 10m`, `0 0.0 0m 0.009 9m 1025 -1 .5 1e3 .inf .nan 0.0005 half`},
		{"resources.memory", "4Mi 16Ti", "0 1Mi 17Ti max"},
		{"resources.pids", "1 64", "0 4194305 max"},
		{"resources.open_files", "16 1048576", "0 15 1048577"},
		{"resources.output", "1Ki 64Gi", "0 1 65Gi"},
		{"resources.output_overflow", "kill truncate", "drop Kill 0 ~ true"},
		{"resources.io_read", "64Ki 1Ti 50M", "0 63Ki 2Ti -1 max 10Mi/s ~"},
		{"resources.io_write", "64Ki 1Ti", "0 1 max"},
		{"resources.io_weight", "1 10000", "0 10001 -1 1.5 default ~"},
		{"timeout", "10ms 30s 1m30s 1.5s 168h", "0 0s 30 9ms 169h -5s 1us 5µs 1.0001s never 1d s"},
		{"version", "1", `0 2 1.0 "1" ~`},
		{"enforcement", "strict best-effort", "none Strict off true"},
		{"rootfs.base", "host dir:/srv/base image:docker.io/library/debian:12 oci:/srv/layout docker-archive:/srv/a.tar", "Host dir:rel dir:/ 'oci:' 'docker-archive:a.tar' 'image:' none /srv 'image:a*'"},
		{"rootfs.bundle", "read-only copy-on-write", "rw"},
		{"syscalls.profile", "strict default debug", "unconfined off"},
		{"audit.syscalls", "none denied security all", "some"},
		{"audit.files", "none writes all", "reads"},
		{"name", "weather a.b-c_D", `1 "" -a true "a/b" ~`},
		{"syscalls.allow", "[] [ptrace,io_uring_setup]", "ptrace [SYS_ptrace] [read,read] ['*'] [1] [null]"},
		{"command", "[sh]", "[] sh [1] [null] [\"a\\0\"]"},
		{"env.pass", "[] [A,_b9]", "[9A] [A-B] [a=b] ['*'] A"},
		{"env.set", `{} {"A":x} {"A":""}`, `{"A":1} {"A":~} {"A":[x]} {"A-B":x} [A]`},
	} {
		for _, good := range strings.Fields(c.good) {
			parse(t, lineFor(c.field, good))
		}
		for _, wrong := range strings.Fields(c.bad) {
			if p, err := Parse("p", []byte(lineFor(c.field, wrong))); err == nil {
				t.Errorf("%s: %s is accepted as\n%s", c.field, wrong, p.YAML())
			} else if !strings.Contains(err.Error(), c.field) {
				t.Errorf("%s: %s: the error names no field: %v", c.field, wrong, err)
			}
		}
	}
}

// lineFor is a policy that gives field the value.
func lineFor(field, value string) string {
	parts := strings.Split(field, ".")
	text := "version: 1\n"
	if field == "version" {
		text = ""
	}
	for i, p := range parts {
		text += strings.Repeat("  ", i) + p + ":"
		if i < len(parts)-1 {
			text += "\n"
		}
	}
	return text + " " + value + "\n"
}

func TestVariablesThatSteerProgramsAreRefused(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_X", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "BASH_ENV", "ENV", "IFS", "SKILLBOX_X", "", "A B", "É"} {
		for _, form := range []string{"pass: [%q]", "set: {%q: x}", "secrets: [%q]"} {
			if _, err := Parse("p", []byte(body("env: {"+fmt.Sprintf(form, name)+"}"))); err == nil {
				t.Errorf(form+" is accepted", name)
			}
		}
	}
	refused(t, body("env: {pass: [A], set: {A: x}}"), "2:27: env.set.A: A is in env.pass already")
	refused(t, body("env: {pass: [A], secrets: [A]}"), "2:28: env.secrets[0]: A is in env.pass already")
	refused(t, body("env: {set: {A: x}, secrets: [A]}"), "2:30: env.secrets[0]: A is in env.set already")
	refused(t, body("syscalls: {allow: [bpf], deny: [bpf]}"), "2:33: syscalls.deny[0]: bpf is in syscalls.allow already")
}

func TestEverythingWrongIsReportedInOrder(t *testing.T) {
	_, err := Parse("p.yaml", []byte("timeout: 0\nresources: {cpu: x, memory: 1, pids: -1}\nfoo: 1\nnetwork: {egress: [{cidrs: [10.0.0.1/8, 10.1.2.3]}]}\naudit: {}\n"))
	want := `p.yaml:1:1: version: is missing (begin the file with version: 1)
p.yaml:1:10: timeout: 0 is refused: it is read as unlimited elsewhere (leave the key out for the default)
p.yaml:2:18: resources.cpu: "x" is not a number of cores (write 0.5, 2 or "500m")
p.yaml:2:29: resources.memory: "1" is not within 4Mi to 16Ti
p.yaml:2:38: resources.pids: "-1" is not a whole number (digits only)
p.yaml:3:1: unknown key "foo" (valid here: version, name, enforcement, command, rootfs, filesystem, env, network, resources, devices, timeout, syscalls, audit, warm)
p.yaml:4:29: network.egress[0].cidrs[0]: 10.0.0.1/8 has bits set beyond its prefix (write 10.0.0.0/8)
p.yaml:4:41: network.egress[0].cidrs[1]: 10.1.2.3 has no prefix length (write 10.1.2.3/32)
p.yaml:5:8: audit: is empty (leave it out, or name one of syscalls, files)`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
	_, err = Parse("p", []byte(body(manyKeys(300))))
	if errs := err.(Errors); len(errs) != maxErrors+1 || len(errs.Unwrap()) != len(errs) {
		t.Errorf("%d errors", len(errs))
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "x%d: 1\n", i)
	}
	return b.String()
}
