package policy

import "encoding/json"

// Schema returns the JSON Schema (2020-12) of a policy file, for editors. It
// accepts every policy that Parse accepts; Parse refuses more.
func Schema() []byte {
	schema := mappingSchema(keys)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "skillbox policy"
	schema["required"] = []string{"version"}
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic("policy: the key table has no JSON Schema: " + err.Error())
	}
	return append(out, '\n')
}

func mappingSchema(table []key) object {
	properties := object{}
	for _, k := range table {
		p := object{}
		if k.keys != nil {
			p = mappingSchema(k.keys)
		}
		for name, v := range k.shape.schema {
			p[name] = v
		}
		p["description"] = k.doc
		if k.def != "" {
			p["description"] = k.doc + " Default: " + k.def + "."
		}
		properties[k.name] = p
	}
	return object{"type": "object", "additionalProperties": false, "minProperties": 1, "properties": properties}
}
