package policy

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

// Service is what an administrator says about the system service.
type Service struct {
	Version int
	Allow   Allowed
	Quota   Quota          // of each user, but for
	Users   []AccountQuota // these, by themselves
	Groups  []AccountQuota // and those in these groups
	Audit   AuditLog       // of the machine, and root's own
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
	{name: "quota", doc: "What one user may take at a time.", keys: append(
		partOf(quotaKeys, func(s *Service) any { return &s.Quota }),
		key{name: "users", doc: "What these users may take instead, by login name or number.", shape: quotas("users"), field: in(func(s *Service) any { return &s.Users })},
		key{name: "groups", doc: "What each other user in these groups may take instead, by their names or numbers.", shape: quotas("groups"), field: in(func(s *Service) any { return &s.Groups })},
	)},
	{name: "audit", doc: "How the machine's audit log is kept, and where its records go besides.", keys: partOf(auditLogKeys, func(s *Service) any { return &s.Audit })},
}

var quotaKeys = []key{
	{name: "calls", doc: "Calls that run.", def: "32", shape: integer(1, 1000), field: in(func(q *Quota) any { return &q.Calls })},
	{name: "boxes", doc: "Boxes that run or are ready.", def: "64", shape: integer(1, 10_000), field: in(func(q *Quota) any { return &q.Boxes })},
	{name: "ready", doc: "Boxes prepared ahead.", def: "32", shape: integer(1, 1000), field: in(func(q *Quota) any { return &q.Ready })},
	{name: "memory", doc: "The sum of resources.memory of the calls that run.", def: "8Gi", shape: size(64*mib, 64*tib), field: in(func(q *Quota) any { return &q.Memory })},
	{name: "pids", doc: "The sum of their resources.pids.", def: "4096", shape: integer(1, 4_194_304), field: in(func(q *Quota) any { return &q.Pids })},
	{name: "connections", doc: "Connections, idle ones too.", def: "128", shape: integer(1, 10_000), field: in(func(q *Quota) any { return &q.Connections })},
}

// partOf makes a table of a part's keys one of the whole's.
func partOf[T any](table []key, part func(*T) any) []key {
	keys := slices.Clone(table)
	for i, k := range keys {
		if k.keys != nil {
			keys[i].keys = partOf(k.keys, part)
			continue
		}
		keys[i].field = func(v any) any { return k.field(part(v.(*T))) }
	}
	return keys
}

// quotas is a mapping of users or groups to quotas.
func quotas(of string) shape {
	const most = 10_000
	what := "a mapping of " + of + " to quotas"
	return shape{
		accepts: what,
		read: func(r *reader, at string, n *yaml.Node, into any) {
			if !r.is(n, at, yaml.MappingNode, what) {
				return
			}
			if many := len(n.Content) / 2; many == 0 || many > most {
				r.fail(n, at, bad("leave the key out, or name somebody", "%d names: 1 to %d may stand here", many, most))
				return
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				name, value := n.Content[i], n.Content[i+1]
				if name.Kind != yaml.ScalarNode || name.Tag == "!!merge" {
					continue // refused by strict
				}
				if _, err := account(name.Value); err != nil {
					r.fail(name, at, err)
					continue
				}
				path := join(at, name.Value)
				a := AccountQuota{Name: name.Value, At: Position{r.file, name.Line, name.Column}, Quota: Quota{From: path}}
				r.mapping(path, value, quotaKeys, &a.Quota)
				*into.(*[]AccountQuota) = append(*into.(*[]AccountQuota), a)
			}
		},
	}
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
