package policy

// Example returns what skillbox policy init writes: a valid, commented policy
// that grants no more than the defaults and names no limit that needs cgroups.
func Example() []byte {
	return []byte(`# A skillbox policy. What is left out holds its default, never "unlimited".
# Every key is explained in docs/policy.md; check with: skillbox policy check policy.yaml
version: 1
name: my-skill

# strict refuses the run if this host cannot enforce a rule; best-effort warns.
enforcement: strict

# The skill runs on the host's /usr, read-only, and cannot change its own files.
rootfs: {base: host, bundle: read-only}

# Scratch space is thrown away after the run. Host paths are absolute and
# literal: neither ~ nor ${HOME} is expanded.
filesystem:
  read: []      # - {host: /srv/reference, path: /reference}
  write: []     # - {host: /srv/results, path: /results}
  tmp: 64Mi
  home: 64Mi

# Nothing of the caller's environment is visible unless it is named here.
env:
  pass: [LANG]
  set: {}       # MODE: fast
  secrets: []   # names; the values become files in /run/secrets

# Without egress there is no network at all.
network:
  egress: []    # - {domains: [api.example.com, "*.example.org"], ports: [443]}
                # - {cidrs: [10.20.0.0/16], ports: [5432, "53/udp"]}

# resources: cpu, memory and pids have defaults; naming one makes it a promise
# that this host must be able to keep, which takes cgroup v2.

timeout: 30s
syscalls: {profile: default}
audit: {syscalls: denied, files: none}
`)
}
