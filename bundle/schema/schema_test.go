package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestAValueFitsOrTheErrorSaysWhereNot(t *testing.T) {
	const wallet = `{"type":"object","properties":{"address":{"type":"string","pattern":"^0x[0-9a-f]{4}$"},"limit":{"type":"integer","minimum":1,"maximum":9},
		"mode":{"enum":["fast","slow"]},"tags":{"type":"array","items":{"type":"string","minLength":1},"maxItems":2,"uniqueItems":true}},
		"required":["address"],"additionalProperties":false}`
	for name, c := range map[string]struct{ schema, value, want string }{
		"all is well":                  {wallet, `{"address":"0x12ab","limit":9,"mode":"fast","tags":["a","b"]}`, ""},
		"what is required":             {wallet, `{}`, "/address: is required and missing"},
		"another type":                 {wallet, `{"address":7}`, "/address: expected a text, found 7"},
		"a fraction is no integer":     {wallet, `{"address":"0x12ab","limit":1.5}`, "/limit: expected an integer, found 1.5"},
		"1.0 is one":                   {wallet, `{"address":"0x12ab","limit":1.0}`, ""},
		"too many":                     {wallet, `{"address":"0x12ab","limit":10}`, "/limit: expected at most 9, found 10"},
		"a pattern":                    {wallet, `{"address":"0xZZ"}`, `/address: expected a text that matches ^0x[0-9a-f]{4}$, found "0xZZ"`},
		"a choice":                     {wallet, `{"address":"0x12ab","mode":"fsat"}`, `/mode: expected one of "fast", "slow", found "fsat"`},
		"an unknown key":               {wallet, `{"address":"0x12ab","adress":"x"}`, "/adress: there is no such key; there are address, limit, mode, tags"},
		"an item":                      {wallet, `{"address":"0x12ab","tags":["a",""]}`, "/tags/1: expected at least 1 characters, found 0"},
		"twice the same":               {wallet, `{"address":"0x12ab","tags":["a","a"]}`, "/tags/1: is the same as item 0, and each must be another"},
		"several at a time":            {wallet, `{"limit":"x","mode":1}`, `/address: is required and missing; /limit: expected an integer, found "x"; /mode: expected one of "fast", "slow", found 1`},
		"no more than five are shown":  {`{"items":{"type":"null"}}`, `[1,1,1,1,1,1,1]`, "/0: expected null, found 1; /1: expected null, found 1; /2: expected null, found 1; /3: expected null, found 1; /4: expected null, found 1; and 2 more"},
		"the whole value":              {`{"type":["object","null"]}`, `[]`, "expected an object or null, found a list"},
		"keys are escaped":             {`{"properties":{"a/b~":{"type":"null"}}}`, `{"a/b~":1}`, "/a~1b~0: expected null, found 1"},
		"one form of several":          {`{"anyOf":[{"type":"null"},{"type":"object","required":["x"]}]}`, `{}`, "fits none of its 2 forms; the nearest says /x: is required and missing"},
		"exactly one":                  {`{"oneOf":[{"type":"integer"},{"minimum":3}]}`, `5`, "fits more than one of the forms of which it must have one (oneOf)"},
		"not":                          {`{"not":{"type":"string"}}`, `"x"`, "is what it must not be (not)"},
		"if, then":                     {`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, "/b: is required and missing"},
		"else":                         {`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{}`, "/c: is required and missing"},
		"a reference":                  {`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"integer"}}}},"$ref":"#/$defs/n"}`, `{"next":{"next":{"v":"x"}}}`, `/next/next/v: expected an integer, found "x"`},
		"a tuple":                      {`{"prefixItems":[{"type":"integer"}],"items":false}`, `[1,2]`, "expected at most 1 items, found 2"},
		"a tuple of old":               {`{"items":[{"type":"integer"}],"additionalItems":{"type":"null"}}`, `[1,2]`, "/1: expected null, found 2"},
		"contains":                     {`{"contains":{"const":1}}`, `[2]`, "holds no item of the kind that it must (contains)"},
		"keys by pattern":              {`{"patternProperties":{"^x-":{"type":"null"}},"additionalProperties":{"type":"boolean"}}`, `{"x-a":1,"b":1}`, "/b: expected true or false, found 1; /x-a: expected null, found 1"},
		"names of keys":                {`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "/abc: the key: expected at most 2 characters, found 3"},
		"what depends on a key":        {`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "/b: is required and missing"},
		"what depended of old":         {`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, `{"a":1,"b":1,"c":1}`, "/d: is required and missing"},
		"both ways of depending":       {`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"a":{"required":["c"]}}}`, `{"a":1}`, "/b: is required and missing; /c: is required and missing"},
		"above":                        {`{"exclusiveMinimum":1}`, `1`, "expected more than 1, found 1"},
		"above of old":                 {`{"minimum":1,"exclusiveMinimum":true}`, `1`, "expected more than 1, found 1"},
		"a multiple":                   {`{"multipleOf":0.1}`, `0.25`, "expected a multiple of 0.1, found 0.25"},
		"decimal fractions":            {`{"multipleOf":0.1}`, `0.3`, ""},
		"characters, not bytes":        {`{"maxLength":2}`, `"äö"`, ""},
		"numbers by value":             {`{"enum":[1,{"a":2.0}]}`, `{"a":2}`, ""},
		"large numbers are not mashed": {`{"const":9007199254740993}`, `9007199254740992`, "expected 9007199254740993, found 9007199254740992"},
		"zero has no sign":             {`{"const":0}`, `-0`, ""},
		"true takes all":               {`true`, `{"x":[1]}`, ""},
		"false takes nothing":          {`false`, `1`, "nothing may be here"},
		"format refuses nothing":       {`{"format":"email","x-more":1,"title":"t","default":3}`, `"x"`, ""},
		"limits of another kind":       {`{"minLength":3,"minItems":3,"minimum":3,"minProperties":3}`, `null`, ""},
		"how many keys":                {`{"minProperties":2}`, `{"a":1}`, "expected at least 2 keys, found 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(c.schema))
			if err != nil || len(s.Unchecked) > 0 {
				t.Fatal(err, s)
			}
			got := ""
			if err := s.Check([]byte(c.value)); err != nil {
				var mismatch *Error
				if got = err.Error(); !errors.As(err, &mismatch) {
					t.Errorf("%T", err)
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestWhatIsNotCheckedIsNamed(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"float"}`: `/type: "float" is no type of JSON Schema`,
		`{"properties":{"a":{"type":"string","required":true}}}`: `/properties/a/required: expected a list of names, found true`,
		`{"pattern":"(?=x)"}`:                   "/pattern: the pattern cannot be used: error parsing regexp: invalid or unsupported Perl syntax: `(?=`",
		`{"unevaluatedProperties":false}`:       "/unevaluatedProperties: this keyword is not checked",
		`{"$ref":"https://example.com/schema"}`: `/$ref: "https://example.com/schema" is not a place in this schema, such as #/$defs/name`,
		`{"$ref":"#/$defs/none"}`:               `/$ref: there is no "#/$defs/none" in this schema`,
		`{"minimum":"3"}`:                       `/minimum: "3" is no such limit`,
		`{"properties":[]}`:                     "/properties: expected keys and schemas, found a list",
		`{"enum":1}`:                            "/enum: expected a list, found a number",
		`{"anyOf":{}}`:                          "/anyOf: expected a list of schemas, found an object",
		`{"minContains":2}`:                     "/minContains: this keyword is not checked",
	} {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Unchecked, "; "); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", schema, got, want)
		}
		for _, value := range []string{`1`, `"x"`, `{}`, `[]`, `null`} {
			if err := s.Check([]byte(value)); err != nil {
				t.Errorf("%s refuses %s: %v", schema, value, err)
			}
		}
	}
}

func TestWhatIsNoSchemaIsAnError(t *testing.T) {
	for text, want := range map[string]string{`[]`: "expected an object, found a list", ``: "there is nothing", `{} 1`: "something follows"} {
		if _, err := Compile(json.RawMessage(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	s, err := Compile(json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check([]byte(`{"a":`)); err == nil {
		t.Error("half a value fits")
	}
}

func TestASchemaThatCostsTooMuchIsGivenUp(t *testing.T) {
	// Each level tries the next twice.
	defs := `"n0":{"type":"null"}`
	for i, n := range strings.Split("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30", " ") {
		before := "n0"
		if i > 0 {
			before = "n" + strings.Split("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30", " ")[i-1]
		}
		defs += `,"n` + n + `":{"anyOf":[{"$ref":"#/$defs/` + before + `"},{"$ref":"#/$defs/` + before + `"}]}`
	}
	for name, c := range map[string]struct{ schema, value string }{
		"exponentially many branches": {`{"$defs":{` + defs + `},"$ref":"#/$defs/n30"}`, `1`},
		"a reference to itself":       {`{"$ref":"#"}`, `1`},
		"two to each other":           {`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`, `1`},
	} {
		s, err := Compile(json.RawMessage(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check([]byte(c.value)); !errors.Is(err, ErrCostly) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"enum":[1]}},"required":["a"]}`, `{"a":2}`)
	f.Add(`{"$ref":"#/a/0","a":[{"items":{"$ref":"#"}}]}`, `[[[1]]]`)
	f.Add(`{"anyOf":[{"not":{}},{"uniqueItems":true}]}`, `[1,1.0]`)
	f.Fuzz(func(t *testing.T, schema, value string) {
		s, err := Compile(json.RawMessage(schema))
		if err != nil {
			return
		}
		first := s.Check([]byte(value))
		if second := s.Check([]byte(value)); (first == nil) != (second == nil) || first != nil && first.Error() != second.Error() {
			t.Errorf("%v, then %v", first, second)
		}
	})
}
