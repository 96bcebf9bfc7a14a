package policy

// Service is what an administrator says about the system service.
type Service struct {
	Version int
	Allow   Allowed
	Quota   Quota
}

// Allowed are those whom the service serves: everybody, unless one of the lists is given.
type Allowed struct {
	Users  []string // login names or numbers
	Groups []string
}

// DefaultService holds where there is no file.
func DefaultService() *Service { return &Service{Version: 1, Quota: DefaultQuota()} }

// ParseService reads /etc/skillbox/service.yaml as strictly as Parse reads a
// policy. The error is an Errors.
func ParseService(file string, data []byte) (*Service, error) {
	r := &reader{file: file, most: maxFile, positions: map[string]Position{}, root: serviceKeys}
	root := r.load(data)
	if root == nil {
		return nil, r.sorted()
	}
	s := DefaultService()
	r.strict(root, 1)
	r.mapping("", root, serviceKeys, s)
	if _, named := r.positions["version"]; !named && len(r.errs) == 0 {
		r.fail(root, "version", bad("begin the file with version: 1", "is missing"))
	}
	if len(r.errs) > 0 {
		return nil, r.sorted()
	}
	return s, nil
}

var serviceKeys = []key{
	{name: "version", doc: "The version of this format.", def: "1", shape: version(), field: in(func(s *Service) any { return &s.Version })},
	{name: "allow", doc: "Whom the service serves; everybody if left out.", keys: []key{
		{name: "users", doc: "Login names or numbers.", def: "[]", shape: words(accounts, account), field: in(func(s *Service) any { return &s.Allow.Users })},
		{name: "groups", doc: "Names or numbers of groups.", def: "[]", shape: words(accounts, account), field: in(func(s *Service) any { return &s.Allow.Groups })},
	}},
	{name: "quota", doc: "What one user may take at a time.", keys: []key{
		{name: "calls", doc: "Calls that run.", def: "32", shape: integer(1, 1000), field: in(func(s *Service) any { return &s.Quota.Calls })},
		{name: "boxes", doc: "Boxes that run or are ready.", def: "64", shape: integer(1, 10_000), field: in(func(s *Service) any { return &s.Quota.Boxes })},
		{name: "ready", doc: "Boxes prepared ahead.", def: "32", shape: integer(1, 1000), field: in(func(s *Service) any { return &s.Quota.Ready })},
		{name: "memory", doc: "The sum of resources.memory of the calls that run.", def: "8Gi", shape: size(64*mib, 64*tib), field: in(func(s *Service) any { return &s.Quota.Memory })},
		{name: "pids", doc: "The sum of their resources.pids.", def: "4096", shape: integer(1, 4_194_304), field: in(func(s *Service) any { return &s.Quota.Pids })},
		{name: "connections", doc: "Connections, idle ones too.", def: "128", shape: integer(1, 10_000), field: in(func(s *Service) any { return &s.Quota.Connections })},
	}},
}

var accounts = listing{what: "names or numbers", most: 10_000, least: 1, item: object{"type": "string"}}

// account is a name as useradd(8) and groupadd(8) take it, or a number in quotes.
func account(s string) (string, error) {
	if !accountName.MatchString(s) {
		return "", bad("", "%s is no name of a user or group", show(s))
	}
	return s, nil
}

var accountName = lazily(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?$`)
