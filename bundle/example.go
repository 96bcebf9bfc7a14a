package bundle

import "encoding/json"

// Example is the least that an entry's schema takes, as far as that is a simple one; nil for an entry without a schema.
func (e *Entry) Example() json.RawMessage {
	if e.Schema == nil {
		return nil
	}
	return ExampleOf(e.Schema, false)
}

// ExampleOf is a value that a JSON Schema takes, as far as it is a simple one: with only what is required, or with most of what may be there.
func ExampleOf(schema json.RawMessage, most bool) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return json.RawMessage("{}")
	}
	text, err := json.Marshal(example(s, most, 0))
	if err != nil {
		return json.RawMessage("{}")
	}
	return text
}

func example(schema map[string]any, most bool, depth int) any {
	for _, key := range []string{"default", "const", "example"} {
		if v, ok := schema[key]; ok {
			return v
		}
	}
	for _, key := range []string{"examples", "enum"} {
		if list, ok := schema[key].([]any); ok && len(list) > 0 {
			return list[0]
		}
	}
	if depth > 8 {
		return nil
	}
	kind, _ := schema["type"].(string)
	switch kind {
	case "string":
		if schema["format"] == "uri" {
			return "https://example.com/"
		}
		return "example"
	case "integer", "number":
		if least, ok := schema["minimum"].(float64); ok {
			return least
		}
		return 1
	case "boolean":
		return true
	case "array":
		if items, ok := schema["items"].(map[string]any); ok {
			return []any{example(items, most, depth+1)}
		}
		return []any{}
	case "null":
		return nil
	}
	object := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	list, _ := schema["required"].([]any)
	required := make(map[string]bool, len(list)) // a stranger's schema may have ten thousands of both
	for _, name := range list {
		if name, ok := name.(string); ok {
			required[name] = true
		}
	}
	for name, p := range properties {
		if property, ok := p.(map[string]any); ok && (most || required[name]) {
			object[name] = example(property, most, depth+1)
		}
	}
	return object
}
