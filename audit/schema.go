package audit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

type object = map[string]any

// Schema returns the JSON Schema (2020-12) of one line of a log. It is made of the types that lines are written from.
func Schema() ([]byte, error) {
	schema := objectSchema(reflect.TypeFor[Event]())
	properties := schema["properties"].(object)
	var names []Kind
	var cases []object
	defs := object{}
	for _, detail := range kinds {
		d := detail()
		names = append(names, d.kind())
		defs[string(d.kind())] = objectSchema(reflect.TypeOf(d).Elem())
		cases = append(cases, object{
			"if":   object{"properties": object{"kind": object{"const": d.kind()}}},
			"then": object{"properties": object{"detail": object{"$ref": "#/$defs/" + string(d.kind())}}},
		})
	}
	properties["v"] = object{"const": Version, "description": properties["v"].(object)["description"]}
	properties["kind"] = object{"enum": names, "description": properties["kind"].(object)["description"]}
	properties["prev"].(object)["pattern"] = "^[0-9a-f]{64}$"
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "one line of skillbox's audit log"
	schema["$defs"], schema["allOf"] = defs, cases
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("audit: schema: %w", err)
	}
	return append(text, '\n'), nil
}

// objectSchema describes a struct by its fields' types and tags.
func objectSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	eachField(t, func(f reflect.StructField, name string, optional bool) {
		p := typeSchema(f)
		p["description"] = f.Tag.Get("doc")
		properties[name] = p
		if !optional {
			required = append(required, name)
		}
	})
	return object{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

// eachField goes through a struct's keys in the order in which they are written.
func eachField(t reflect.Type, do func(f reflect.StructField, name string, optional bool)) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			eachField(f.Type, do)
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		do(f, name, strings.Contains(rest, "omit"))
	}
}

func typeSchema(f reflect.StructField) object {
	text := object{"type": "string", "maxLength": maxText(f) + markLength}
	if words := f.Tag.Get("enum"); words != "" {
		text = object{"enum": strings.Split(words, ",")}
	}
	switch t := f.Type; t.Kind() {
	case reflect.String:
		return text
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": text, "maxItems": maxItems}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": "integer"}}
	case reflect.Pointer:
		return objectSchema(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return object{"type": "string", "format": "date-time", "pattern": `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$`}
		}
		return objectSchema(t)
	}
	return object{} // detail, which depends on the kind
}
