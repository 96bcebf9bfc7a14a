package audit

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite docs/audit.schema.json, and the reference in docs/audit.md")

func TestTheSchemaInTheDocumentsIsThatOfTheTypes(t *testing.T) {
	const page = "../docs/audit.schema.json"
	schema, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, schema, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(content(t, page), schema) {
		t.Errorf("%s is out of date; run go test ./audit -run Documents -update", page)
	}
}

func TestTheDocumentsListEveryKey(t *testing.T) {
	const page = "../docs/audit.md"
	const begin, end = "<!-- reference: generated from the types by go test ./audit -run Documents -update -->\n", "<!-- end of reference -->\n"
	var b strings.Builder
	rows := func(title string, of reflect.Type) {
		fmt.Fprintf(&b, "\n### %s\n\n| key | type | meaning |\n|---|---|---|\n", title)
		eachField(of, func(f reflect.StructField, name string, optional bool) {
			kind := map[reflect.Kind]string{reflect.String: "text", reflect.Slice: "list", reflect.Map: "object", reflect.Pointer: "object", reflect.Struct: "object", reflect.Interface: "object"}[f.Type.Kind()]
			if kind == "" {
				kind = "number"
			}
			if name == "time" {
				kind = "text"
			}
			if optional {
				kind += ", optional"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, kind, strings.ReplaceAll(f.Tag.Get("doc"), "|", `\|`))
		})
	}
	rows("Every record", reflect.TypeFor[Event]())
	rows("caller", reflect.TypeFor[Caller]())
	rows("skill", reflect.TypeFor[Skill]())
	for _, detail := range kinds {
		d := detail()
		rows("detail of "+string(d.kind()), reflect.TypeOf(d).Elem())
	}
	rows("usage of run.ended", reflect.TypeFor[Usage]())
	b.WriteString("\n")
	text := string(content(t, page))
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers", page)
	}
	now := before + begin + b.String() + end + after
	if *update {
		put(t, []byte(now), page)
	} else if now != text {
		t.Errorf("%s is out of date; run go test ./audit -run Documents -update", page)
	}
}

// filled is an event of each kind with a value in every field.
func filled(text string) []Event {
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString(text)
		case reflect.Int, reflect.Int64:
			v.SetInt(7)
		case reflect.Uint64:
			v.SetUint(7)
		case reflect.Float64:
			v.SetFloat(math.Inf(1))
		case reflect.Slice:
			for range 200 {
				v.Set(reflect.Append(v, reflect.ValueOf(text)))
			}
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]int64{text: 1, "dns": 2}))
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Tag.Get("enum") != "" {
					v.Field(i).SetString("denied")
				} else {
					fill(v.Field(i))
				}
			}
		}
	}
	var all []Event
	for _, detail := range kinds {
		d := detail()
		if own(d.kind()) {
			continue
		}
		fill(reflect.ValueOf(d).Elem())
		all = append(all, Event{Run: text, Caller: &Caller{Process: text}, Skill: &Skill{Name: text, Digest: text}, Detail: d})
	}
	return all
}

func TestEveryRecordFitsTheSchema(t *testing.T) {
	dir := t.TempDir() + "/audit"
	l := open(t, dir, quick)
	for _, text := range []string{"", "a", "<&>\"\\", "\x1b[31m\n\u202e\xff\u200b", strings.Repeat("\x00", 9000), strings.Repeat(`"`, 9000), strings.Repeat("é", 9000)} {
		add(t, l, filled(text)...)
	}
	add(t, l, run("one")...)
	shut(t, l)
	put(t, append(content(t, dir, segmentName(1)), '{'), dir, segmentName(1))
	lossy := quick
	lossy.Sink = &memory{lost: []Undelivered{{Sink: "otlp \x1b[31m", Records: 3, Why: strings.Repeat("\x00", 9000)}}}
	l = open(t, dir, lossy)
	add(t, l, run("two")...)
	shut(t, l)
	if r := whole(t, dir); r.Torn != 1 {
		t.Errorf("%+v", r)
	}
	var schema object
	if err := json.Unmarshal(content(t, "../docs/audit.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	seen := map[Kind]bool{}
	for r, err := range Read(dir, Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[r.Kind] = true
		if len(r.Line) > MaxRecord {
			t.Errorf("a record of %d bytes", len(r.Line))
		}
		for _, c := range string(r.Line) {
			if unsafeRune(c) || c == utf8.RuneError {
				t.Errorf("%q in %s", c, r.Line)
			}
		}
		var value any
		d := json.NewDecoder(bytes.NewReader(r.Line))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range check(schema, schema, value, "") {
			t.Errorf("record %d, %s%s", r.Seq, r.Kind, wrong)
		}
	}
	for _, k := range Kinds() {
		if !seen[k] {
			t.Errorf("no record of kind %s", k)
		}
	}
}

// What the schema refuses, so that the check above means something.
func TestTheSchemaRefuses(t *testing.T) {
	var schema object
	if err := json.Unmarshal(content(t, "../docs/audit.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	dir := small(t)
	line := string(bytes.SplitAfter(content(t, dir, segmentName(1)), []byte("\n"))[1])
	for old, changed := range map[string]string{
		`"v":1`: `"v":2`, `"seq":2`: `"seq":-2`, `"kind":"run.granted"`: `"kind":"run.greeted"`, `"mode":`: `"mood":`, `"uid":1000`: `"uid":"root"`, `Z","mono"`: `","mono"`, `"host":`: `"ghost":`,
	} {
		var value any
		d := json.NewDecoder(strings.NewReader(strings.Replace(line, old, changed, 1)))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if len(check(schema, schema, value, "")) == 0 || !strings.Contains(line, old) {
			t.Errorf("%s is accepted", changed)
		}
	}
}

// check is as much of a JSON Schema validator as our schema needs; a word that it does not know is wrong.
func check(root, s object, v any, at string) (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: "+format, append([]any{at}, args...)...))
	}
	for word, want := range s {
		switch word {
		case "$schema", "title", "description", "$defs", "format", "then":
		case "$ref":
			wrong = append(wrong, check(root, root["$defs"].(object)[strings.TrimPrefix(want.(string), "#/$defs/")].(object), v, at)...)
		case "type":
			_, isText := v.(string)
			n, isNumber := v.(json.Number)
			_, err := n.Int64()
			_, isList := v.([]any)
			_, isObject := v.(object)
			if !(map[string]bool{"string": isText, "number": isNumber, "integer": isNumber && err == nil, "array": isList, "object": isObject})[want.(string)] {
				say("%v is no %s", v, want)
			}
		case "const":
			if fmt.Sprint(v) != fmt.Sprint(want) {
				say("%v is not %v", v, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), v) {
				say("%v is none of %v", v, want)
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(want.(string)).MatchString(text) {
				say("%q does not match %s", text, want)
			}
		case "maxLength":
			if text, ok := v.(string); ok && float64(utf8.RuneCountInString(text)) > want.(float64) {
				say("%d characters", utf8.RuneCountInString(text))
			}
		case "minimum":
			if n, ok := v.(json.Number); ok && strings.HasPrefix(n.String(), "-") {
				say("%s is below %v", n, want)
			}
		case "maxItems":
			if list, ok := v.([]any); ok && float64(len(list)) > want.(float64) {
				say("%d items", len(list))
			}
		case "items":
			if list, ok := v.([]any); ok {
				for i, item := range list {
					wrong = append(wrong, check(root, want.(object), item, fmt.Sprintf("%s[%d]", at, i))...)
				}
			}
		case "required":
			if o, ok := v.(object); ok {
				for _, name := range want.([]any) {
					if _, there := o[name.(string)]; !there {
						say("no %s", name)
					}
				}
			}
		case "properties", "additionalProperties":
			if o, ok := v.(object); ok {
				wrong = append(wrong, checkKeys(root, s, word, o, at)...)
			}
		case "allOf":
			for _, one := range want.([]any) {
				wrong = append(wrong, check(root, one.(object), v, at)...)
			}
		case "if":
			if len(check(root, want.(object), v, at)) == 0 {
				wrong = append(wrong, check(root, s["then"].(object), v, at)...)
			}
		default:
			say("the schema says %s", word)
		}
	}
	return wrong
}

func checkKeys(root, s object, word string, o object, at string) (wrong []string) {
	properties, _ := s["properties"].(object)
	for name, value := range o {
		p, known := properties[name].(object)
		rest, isSchema := s["additionalProperties"].(object)
		switch {
		case word == "properties" && known:
			wrong = append(wrong, check(root, p, value, at+"."+name)...)
		case word == "additionalProperties" && !known && isSchema:
			wrong = append(wrong, check(root, rest, value, at+"."+name)...)
		case word == "additionalProperties" && !known:
			wrong = append(wrong, fmt.Sprintf("%s.%s: there is no such key", at, name))
		}
	}
	return wrong
}
