package policy

import (
	"encoding/json"
	"regexp"
	"testing"
)

func TestTheSchemaKnowsEveryKeyAndNoOther(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	sameKeys(t, "", keys, root)
	items := func(path ...string) map[string]any {
		at := root
		for _, name := range path {
			at = at["properties"].(map[string]any)[name].(map[string]any)
		}
		return at["items"].(map[string]any)
	}
	sameKeys(t, "filesystem.read[]", bindKeys, items("filesystem", "read"))
	sameKeys(t, "network.egress[]", egressKeys, items("network", "egress"))
	sameKeys(t, "network.deny[]", denyKeys, items("network", "deny"))
}

func sameKeys(t *testing.T, at string, table []key, schema map[string]any) {
	t.Helper()
	properties := schema["properties"].(map[string]any)
	if schema["additionalProperties"] != false || len(properties) != len(table) {
		t.Errorf("%q has %d keys in the schema, %d in the table", at, len(properties), len(table))
	}
	for _, k := range table {
		p, ok := properties[k.name].(map[string]any)
		if !ok || p["description"] == "" {
			t.Errorf("%s is not described", join(at, k.name))
		}
		if k.keys != nil {
			sameKeys(t, join(at, k.name), k.keys, p)
		}
	}
}

func TestThePatternsOfTheSchemaAcceptTheDefaults(t *testing.T) {
	each(func(path string, k key) {
		p, ok := k.shape.schema["pattern"].(string)
		if ok && k.def != "" && !regexp.MustCompile(p).MatchString(k.def) {
			t.Errorf("%s: %s does not match %s", path, k.def, p)
		}
	})
}
