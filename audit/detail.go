package audit

// Granted is written before anything of a run is prepared. A run whose grant cannot be written does not start.
type Granted struct {
	Mode          string `json:"mode" doc:"root or rootless" max:"32"`
	Helper        string `json:"helper,omitempty" doc:"who serves it: system, user or oneshot" max:"32"`
	Policy        string `json:"policy,omitempty" doc:"the policy's name as the caller wrote it; absent where none was given"`
	PolicyDigest  string `json:"policy_digest" doc:"digest of the policy" max:"128"`
	CeilingDigest string `json:"ceiling_digest,omitempty" doc:"digest of the administrator's ceiling; absent where there is none" max:"128"`
	PlanDigest    string `json:"plan_digest" doc:"digest of the plan that skillbox plan prints" max:"128"`
	Image         string `json:"image,omitempty" doc:"digest of the image that is the root; absent for another base" max:"128"`
	Session       string `json:"session,omitempty" doc:"in whose box it runs" max:"64"`
	Call          int    `json:"call,omitempty" doc:"its number there, from 1"`
	Trust         *Trust `json:"trust,omitempty" doc:"how far the bundle was believed; absent where nothing asks for it"`
}

// Trust is how far a bundle was believed, and why.
type Trust struct {
	Tier       string `json:"tier,omitempty" doc:"trusted, reviewed or untrusted; absent where the host tells none apart" max:"32"`
	Signature  string `json:"signature" doc:"none, valid, unknown-key or invalid" max:"32"`
	KeyID      string `json:"key_id,omitempty" doc:"id of the key that signed, as minisign prints it; absent where there is no signature" max:"32"`
	RemoteCode bool   `json:"trust_remote_code,omitempty" doc:"the caller lifted the floor of an untrusted bundle"`
}

// Refused is a run that did not start: one record for each reason.
type Refused struct {
	Message string `json:"message" doc:"what is wrong"`
	Outcome
}

// Started is written when the skill's command runs.
type Started struct {
	Box     string   `json:"box" doc:"what was ready before the call: cold, prepared or preloaded" max:"32"`
	Command []string `json:"command" doc:"the command's words as they were started"`
}

// Layer is one of the sandbox's layers, found in force from inside before anything of the skill ran.
type Layer struct {
	Layer string `json:"layer" doc:"such as seccomp, namespaces, cgroup" max:"64"`
	State string `json:"state" doc:"what was seen"`
}

// Verdicts of an Outcome.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Failed  = "failed" // neither: it was not found, or skillbox could not
)

// Outcome is what became of something that was tried.
type Outcome struct {
	Verdict string `json:"verdict" doc:"allowed, denied or failed" enum:"allowed,denied,failed"`
	Error   string `json:"error,omitempty" doc:"what the skill was told, such as EACCES" max:"128"`
	Layer   string `json:"layer,omitempty" doc:"which layer decided" max:"64"`
	Subject string `json:"subject,omitempty" doc:"what the decision is about, where the other keys do not say it"`
	Rule    string `json:"rule,omitempty" doc:"the line of the policy that decided, as file:line, or what it lacks"`
	Remedy  string `json:"remedy,omitempty" doc:"the smallest addition to the policy that would allow it"`
	Count   int64  `json:"count,omitempty" doc:"how often, where one record stands for several; absent is once"`
}

// Exec is a program that was started, or was to be.
type Exec struct {
	PID     int      `json:"pid" doc:"process id inside the box"`
	Parent  int      `json:"parent,omitempty" doc:"process id of its parent inside the box"`
	Path    string   `json:"path" doc:"the program, resolved where it is not claimed" max:"4096"`
	Argv    []string `json:"argv,omitempty" doc:"its words"`
	Claimed []string `json:"claimed,omitempty" doc:"keys of this detail that were read from the skill's memory, which it may have changed meanwhile" max:"32"`
	Outcome
}

// File is a file that was opened, made, changed or removed.
type File struct {
	PID     int      `json:"pid" doc:"process id inside the box"`
	Op      string   `json:"op" doc:"open, create, write, remove, rename, link, mode, owner or directory" max:"32"`
	Path    string   `json:"path" doc:"the file, resolved where it is not claimed" max:"4096"`
	To      string   `json:"to,omitempty" doc:"its new name" max:"4096"`
	Flags   []string `json:"flags,omitempty" doc:"such as O_WRONLY" max:"32"`
	Claimed []string `json:"claimed,omitempty" doc:"keys of this detail that were read from the skill's memory, which it may have changed meanwhile" max:"32"`
	Outcome
}

// Syscall is a watched or refused system call.
type Syscall struct {
	PID     int      `json:"pid,omitempty" doc:"process id inside the box"`
	Name    string   `json:"name" doc:"the call" max:"64"`
	Arch    string   `json:"arch,omitempty" doc:"its architecture where it is not the machine's" max:"32"`
	Args    []string `json:"args,omitempty" doc:"its arguments, as words where they have a name"`
	Claimed []string `json:"claimed,omitempty" doc:"keys of this detail that were read from the skill's memory, which it may have changed meanwhile" max:"32"`
	Outcome
}

// DNS is a lookup.
type DNS struct {
	Name       string   `json:"name" doc:"as it was asked for" max:"512"`
	Type       string   `json:"type" doc:"such as A" max:"32"`
	Addresses  []string `json:"addresses,omitempty" doc:"the answer" max:"64"`
	DurationMS float64  `json:"duration_ms,omitempty" doc:"milliseconds that it took"`
	Outcome
}

// Connection is a connection or a packet of the box's.
type Connection struct {
	PID        int      `json:"pid,omitempty" doc:"process id inside the box; absent where the network saw it and not the system call"`
	Op         string   `json:"op" doc:"connect, bind, listen, accept or send" max:"32"`
	Direction  string   `json:"direction,omitempty" doc:"in where somebody outside made it, and address and port are the box's own; absent of what the box made" max:"8"`
	Proto      string   `json:"proto" doc:"tcp, udp, unix …" max:"32"`
	Name       string   `json:"name,omitempty" doc:"the name that it was asked for by" max:"512"`
	Address    string   `json:"address,omitempty" doc:"the address" max:"256"`
	Port       int      `json:"port,omitempty" doc:"the port"`
	BytesOut   int64    `json:"bytes_out,omitempty" doc:"bytes that the skill sent"`
	BytesIn    int64    `json:"bytes_in,omitempty" doc:"bytes that it received"`
	DurationMS float64  `json:"duration_ms,omitempty" doc:"milliseconds that it lasted"`
	FirstBytes string   `json:"first_bytes,omitempty" doc:"what the skill sent first, where a sinkhole took it, within TLS if it trusted any certificate: text, with all that is none written out as \\xff" max:"4096"`
	Claimed    []string `json:"claimed,omitempty" doc:"keys of this detail that were read from the skill's memory, which it may have changed meanwhile" max:"32"`
	Outcome
}

// Env is a variable of the caller's that the skill asks for.
type Env struct {
	Name string `json:"name" doc:"the variable; its value is in no record" max:"256"`
	Outcome
}

// Limit is a limit that the skill met.
type Limit struct {
	Limit string `json:"limit" doc:"the policy's key, such as resources.memory" max:"64"`
	Value int64  `json:"value" doc:"what it allows: bytes, processes, milliseconds"`
	Outcome
}

// Output is a file taken out of the box.
type Output struct {
	Name   string `json:"name" doc:"below /output" max:"4096"`
	Bytes  int64  `json:"bytes" doc:"its length"`
	SHA256 string `json:"sha256" doc:"of its content, in hex" max:"64"`
}

// Ended is a run's end, however it came.
type Ended struct {
	Verdict    string           `json:"verdict" doc:"as in the result: exited, signaled, timed_out …" max:"32"`
	ExitCode   int              `json:"exit_code" doc:"what the skillbox command exits with"`
	Signal     string           `json:"signal,omitempty" doc:"such as SIGKILL" max:"32"`
	DurationMS float64          `json:"duration_ms" doc:"milliseconds from the call to its end"`
	Error      string           `json:"error,omitempty" doc:"why it did not exit by itself"`
	Usage      Usage            `json:"usage" doc:"what it used"`
	Denials    map[string]int64 `json:"denials,omitempty" doc:"how much was refused, by kind"`
	Dropped    uint64           `json:"dropped,omitempty" doc:"details of this run that were not written: the disk was full, or there were too many"`
}

// Usage is what a run used; what nobody could tell is absent.
type Usage struct {
	UserMS      float64 `json:"user_ms,omitempty" doc:"processor time, in milliseconds"`
	SystemMS    float64 `json:"system_ms,omitempty" doc:"the kernel's processor time for it, in milliseconds"`
	MemoryPeak  int64   `json:"memory_peak,omitempty" doc:"bytes"`
	PidsPeak    int64   `json:"pids_peak,omitempty" doc:"processes and threads"`
	StdoutBytes int64   `json:"stdout_bytes,omitempty" doc:"bytes"`
	StderrBytes int64   `json:"stderr_bytes,omitempty" doc:"bytes"`
	BytesOut    int64   `json:"bytes_out,omitempty" doc:"bytes within connections"`
	BytesIn     int64   `json:"bytes_in,omitempty" doc:"bytes within connections"`
}

// Opened is the first record of a segment.
type Opened struct {
	Log     string `json:"log" doc:"random id of the log, the same in every segment"`
	Segment uint64 `json:"segment" doc:"number of this segment, from 1"`
	Key     string `json:"key" doc:"id of the key that signs checkpoints: SHA-256 of its public half, in hex"`
	Root    string `json:"root" doc:"Merkle root of the segment before, in hex; of none, SHA-256 of nothing"`
	Lines   uint64 `json:"lines" doc:"how many lines the segment before has"`
}

// Checkpoint is a signature over the segment so far.
type Checkpoint struct {
	Log     string `json:"log" doc:"id of the log"`
	Segment uint64 `json:"segment" doc:"number of the segment"`
	Lines   uint64 `json:"lines" doc:"lines of the segment before this one"`
	Root    string `json:"root" doc:"Merkle root (RFC 6962) of those lines, in hex"`
	Oldest  uint64 `json:"oldest" doc:"number of the oldest segment that is kept; those before may be removed"`
	Dropped uint64 `json:"dropped,omitempty" doc:"details that the signing process has not written since its checkpoint before, because the disk was full"`
	Key     string `json:"key" doc:"id of the key"`
	Sig     string `json:"sig" doc:"Ed25519 signature, in hex, over a line \"skillbox audit checkpoint 1\" and this record up to the comma before sig"`
}

// Torn stands where a process died while it wrote, or a disk did not take a whole line: its rest was removed.
type Torn struct {
	Bytes  int64  `json:"bytes" doc:"how many bytes were removed"`
	SHA256 string `json:"sha256" doc:"of what was removed, in hex"`
}

func (Granted) kind() Kind    { return RunGranted }
func (Refused) kind() Kind    { return RunRefused }
func (Started) kind() Kind    { return RunStarted }
func (Layer) kind() Kind      { return LayerVerified }
func (Exec) kind() Kind       { return ExecKind }
func (File) kind() Kind       { return FileKind }
func (Syscall) kind() Kind    { return SyscallKind }
func (DNS) kind() Kind        { return DNSKind }
func (Connection) kind() Kind { return ConnKind }
func (Env) kind() Kind        { return EnvKind }
func (Limit) kind() Kind      { return LimitKind }
func (Output) kind() Kind     { return OutputKind }
func (Ended) kind() Kind      { return RunEnded }
func (Opened) kind() Kind     { return LogOpened }
func (Checkpoint) kind() Kind { return LogCheckpoint }
func (Torn) kind() Kind       { return LogTorn }
