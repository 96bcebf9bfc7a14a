package helper

// Text answers OpPolicySchema and OpPolicyInit.
type Text struct {
	Text string `json:"text"`
}

// PolicyChecked answers OpPolicyCheck: what the policy says with its defaults, or everything that is wrong with it.
type PolicyChecked struct {
	File   string   `json:"file"`
	Valid  bool     `json:"valid"`
	Errors []*Error `json:"errors"`
	Policy string   `json:"policy,omitempty"`
	Digest string   `json:"digest,omitempty"`
}

// Machine answers OpDoctor: what only skillboxd can find out.
type Machine struct {
	HostFile HostFile `json:"host_file"`
	Groups   Groups   `json:"groups"`
}

// HostFile is the administrator's ceiling for the whole host, as skillboxd reads it.
type HostFile struct {
	Path   string   `json:"path"`
	Exists bool     `json:"exists"`
	UID    int      `json:"uid"` // who owns it
	Errors []*Error `json:"errors"`
}

// Groups is where boxes' control groups go, and what can be limited there. Where there can be none, Message says why.
type Groups struct {
	In          string   `json:"in"`
	Controllers []string `json:"controllers"`
	Message     string   `json:"message,omitempty"`
	Hint        string   `json:"hint,omitempty"`
}
