package scan

// Rule is one thing that a scan looks for.
type Rule struct {
	ID          string
	Severity    Severity // of most findings; one that is worse or milder says so itself
	Category    string
	Title       string
	Description string // what it means, in general
	Remediation string // what the skill's author can do
}

// Ids of rules, each with an entry in Rules.
const (
	EgressUndeclared = "SKILLBOX_EGRESS_UNDECLARED"
	SecretRead       = "SKILLBOX_SECRET_READ"
	SecretExfil      = "SKILLBOX_SECRET_EXFIL"
	WriteOutside     = "SKILLBOX_WRITE_OUTSIDE"
	SyscallDangerous = "SKILLBOX_SYSCALL_DANGEROUS"
	Persistence      = "SKILLBOX_PERSISTENCE"
	SandboxDetection = "SKILLBOX_SANDBOX_DETECTION"
	ResourceAbuse    = "SKILLBOX_RESOURCE_ABUSE"
	ObfuscatedExec   = "SKILLBOX_OBFUSCATED_EXEC"
	MetadataAccess   = "SKILLBOX_METADATA_ACCESS"
	ReverseShell     = "SKILLBOX_REVERSE_SHELL"
	RemoteCode       = "SKILLBOX_REMOTE_CODE"
	TimeBomb         = "SKILLBOX_TIME_BOMB"
	Listens          = "SKILLBOX_LISTENS"
)

// Rules is every rule there is, the worst first.
func Rules() []Rule {
	return []Rule{
		{
			SecretExfil, Critical, "exfiltration", "A secret leaves the skill",
			"A decoy secret that the scan had laid out came out again: in a name that was looked up, in what was sent, or in what the skill printed. It is also recognised reversed, in hex, base64, base32, as URL encoding and as rot13.",
			"Send a credential only to the service that it is for, and never print it. Take it from a file in /run/secrets that the policy names.",
		},
		{
			ReverseShell, Critical, "command-and-control", "A shell is given to somebody else",
			"The skill started a shell whose input and output are a connection, which lets whoever is at its other end type commands.",
			"Remove it. No skill needs a shell that is served over the network.",
		},
		{
			RemoteCode, Critical, "remote-code", "Code from the network is run",
			"What was to be downloaded goes to an interpreter at once, so that nobody can know beforehand what the skill does.",
			"Put the code into the bundle, where its digest covers it.",
		},
		{
			SecretRead, High, "credential-access", "Credentials are read that the skill was not given",
			"The skill opened a file that holds credentials: the decoys of a home directory, the accounts of the system, or the memory or environment of another process.",
			"Ask for what the skill needs by name, as env.secrets in its policy.",
		},
		{
			Persistence, High, "persistence", "The skill arranges to be run again",
			"The skill changed or tried to change what a shell, a login, a scheduler or a service manager runs by itself.",
			"Remove it. A skill runs when its host calls it.",
		},
		{
			MetadataAccess, High, "credential-access", "The cloud's metadata service is asked",
			"The skill turned to the address at which a cloud gives machines their credentials.",
			"Remove it. Credentials that the skill needs are given to it by name.",
		},
		{
			SyscallDangerous, High, "escape", "A system call is tried that breaks out of sandboxes",
			"The skill made a call that loads code into the kernel, reaches into other processes or changes namespaces and mounts.",
			"Remove it, or say in the skill's description what it is for and in its policy that it is needed (syscalls.allow).",
		},
		{
			ObfuscatedExec, High, "obfuscation", "Code is run that was hidden",
			"What is run was encoded before, or was written by the skill itself: a reader of the bundle does not see what it does.",
			"Put the code into the bundle as it is.",
		},
		{
			TimeBomb, High, "evasion", "The skill behaves differently at another date",
			"With the clock moved forward the same call did what it does not do today.",
			"Remove what depends on the date, or say in the skill's description what it does then.",
		},
		{
			EgressUndeclared, Medium, "network", "The skill turns to an address that it does not declare",
			"A name was looked up, or a connection made, that no rule of the declared policy allows.",
			"Declare the name in network.egress of the skill's policy, or remove the connection.",
		},
		{
			SandboxDetection, Medium, "evasion", "The skill looks whether it is observed",
			"The skill looked at what tells a sandbox, a container or a virtual machine from a common machine, and at nothing that it could use otherwise.",
			"Remove it. A skill that works everywhere need not know where it is.",
		},
		{
			ResourceAbuse, Medium, "resource-abuse", "The skill uses more than it may",
			"The skill met a limit, or kept a processor busy until its time was over.",
			"Bound what the skill does, or declare the limit that it needs under resources.",
		},
		{
			WriteOutside, Medium, "filesystem", "The skill writes where it has no business",
			"The skill changed, or tried to change, files other than its scratch space and its output: the system's, its own, or the user's.",
			"Write results to /output and temporary files to /tmp.",
		},
		{
			Listens, Low, "network", "The skill waits for connections",
			"The skill opened a port or a socket that others could connect to. In a box nobody can.",
			"Remove it, or say in the skill's description what it is for.",
		},
	}
}

// ruleOf returns the rule with an id of those above.
func ruleOf(id string) Rule {
	for _, r := range Rules() {
		if r.ID == id {
			return r
		}
	}
	return Rule{ID: id}
}
