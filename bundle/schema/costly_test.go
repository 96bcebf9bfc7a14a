package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// manifest is how large a schema can be.
const manifest = 256 << 10

// list is a JSON list of n values.
func list(n int, one func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = one(i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// object is a JSON object of n keys with one value.
func object(n int, key func(i int) string, value string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = quoted(key(i)) + ":" + value
	}
	return "{" + strings.Join(all, ",") + "}"
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// always is the same for each i.
func always(s string) func(int) string { return func(int) string { return s } }

// short is a name for each i.
func short(i int) string { return fmt.Sprintf("%x", i) }

// often is a schema that asks for another n times.
func often(n int, schema string) string {
	return `{"allOf":` + list(n, always(`{"$ref":"#/$defs/a"}`)) + `,"$defs":{"a":` + schema + `}}`
}

// bounded runs f, which may allocate no more than some times what a schema and a value have.
func bounded(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 256 {
		t.Errorf("allocated %d MiB", mib)
	} else {
		t.Logf("%v, %d MiB", took.Round(time.Millisecond), mib)
	}
}

func TestASchemaOfUnboundedSizeIsRefused(t *testing.T) {
	long := strings.Repeat("k", 100_000)
	for name, c := range map[string]struct{ schema, want string }{
		"many schemas":                     {`{"allOf":` + list(60_000, always("{}")) + `}`, "more than 10000 schemas"},
		"many keys below a long one":       {`{"properties":{"` + long + `":{"allOf":` + list(9_000, always("true")) + `}}}`, "keys are too long"},
		"many keywords below a long one":   {`{"properties":{"` + long + `":` + object(9_000, short, "1") + `}}`, "keys are too long"},
		"a repetition":                     {`{"pattern":"(` + strings.Repeat("a", 300) + `){1000}"}`, "/pattern: its patterns take more than 20000 instructions"},
		"repetitions of repetitions":       {`{"pattern":"((((a{10}){10}b){10}c*){20,}"}`, ""}, // RE2 does not take it at all
		"many repetitions":                 {`{"properties":` + object(5_000, short, `{"pattern":"(abcd){1000}"}`) + `}`, "instructions"},
		"repetitions of keys":              {`{"patternProperties":` + object(5_000, func(i int) string { return fmt.Sprintf("(abcd%d){1000}", i) }, `{}`) + `}`, "instructions"},
		"large classes":                    {`{"pattern":` + quoted("["+strings.Repeat(`\pL`, 60_000)+"]") + `}`, "instructions"},
		"large classes, each for itself":   {`{"pattern":` + quoted(strings.Repeat(`\pL`, 900)) + `}`, "instructions"},
		"ranges without regard to case":    {`{"pattern":` + quoted("(?i)["+strings.Repeat(`B-𞤀`, 20_000)+"]") + `}`, "instructions"},
		"ranges, with the flag at its end": {`{"pattern":` + quoted("(?smi:["+strings.Repeat(`B-\x{1e900}`, 5_000)+"])") + `}`, "instructions"},
		"a long pattern":                   {`{"pattern":"` + strings.Repeat("a", 200_000) + `"}`, "instructions"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.schema) > manifest*5/2 {
				t.Fatalf("%d bytes fit into no manifest", len(c.schema))
			}
			bounded(t, func() {
				if _, err := Compile(json.RawMessage(c.schema)); c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%.200v", err)
				}
			})
		})
	}
}

func TestAPlaceHasOnePointer(t *testing.T) {
	big := list(2_000, always(`{"type":"integer"}`))
	tilde := strings.Repeat("~", 11)
	spelled := func(i int) string { // each ~ as it is, or as ~0
		s := ""
		for bit := range len(tilde) {
			s += "~"
			if i>>bit&1 == 1 {
				s += "0"
			}
		}
		return s
	}
	for name, c := range map[string]struct {
		schema string
		skips  int
	}{
		"zeros before an index": {`{"allOf":[{"allOf":` + big + `}],"anyOf":` + list(400, func(i int) string {
			return `{"$ref":"#/allOf/` + strings.Repeat("0", i) + `0"}`
		}) + `}`, 101},
		"a sign before an index":       {`{"allOf":[{"allOf":` + big + `}],"anyOf":[{"$ref":"#/allOf/+0"},{"$ref":"#/allOf/-0"},{"$ref":"#/allOf/0"}]}`, 2},
		"tildes that are not escaped":  {`{"$defs":{"` + tilde + `":{"allOf":` + big + `}},"anyOf":` + list(2_000, func(i int) string { return `{"$ref":"#/$defs/` + spelled(i) + `"}` }) + `}`, 0},
		"a place that is a part of it": {`{"allOf":[{"allOf":` + big + `}],"anyOf":[{"$ref":"#/allOf/0"},{"$ref":"#"}]}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bounded(t, func() {
				s, err := Compile(json.RawMessage(c.schema))
				if err != nil || len(s.Unchecked) != c.skips {
					t.Fatalf("%.200v, %.200v", err, s)
				}
			})
		})
	}
}

func TestACheckOfUnboundedWorkIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector has package regexp allocate anew what it would use again")
	}
	const text = 1 << 20
	numbers := list(20_000, decimal)
	for name, c := range map[string]struct{ schema, value string }{
		"required, again and again":             {strings.Replace(often(5_000, `{"required":`+list(10_000, func(i int) string { return quoted(short(i)) })+`}`), "allOf", "anyOf", 1), `{}`},
		"required and there":                    {often(5_000, `{"required":`+list(10_000, always(`"a"`))+`}`), `{"a":1}`},
		"required, below a long key":            {`{"additionalProperties":{"required":` + list(20_000, func(i int) string { return quoted(short(i)) }) + `}}`, `{"` + strings.Repeat("k", text) + `":{}}`},
		"all keys, again and again":             {often(5_000, `{"properties":{"x":{}}}`), object(20_000, short, "1")},
		"long keys":                             {often(5_000, `{"properties":{"x":{}}}`), object(1_000, func(i int) string { return strings.Repeat("k", 1000) + short(i) }, "1")},
		"what depends on keys":                  {often(5_000, `{"dependentRequired":`+object(10_000, short, `[]`)+`}`), `{"x":1}`},
		"items below a long key":                {`{"additionalProperties":{"items":{}}}`, `{"` + strings.Repeat("k", text) + `":` + numbers + `}`},
		"items of which no two may be the same": {often(5_000, `{"uniqueItems":true}`), `[` + numbers + `]`},
		"long texts, each another":              {often(5_000, `{"uniqueItems":true}`), `["` + strings.Repeat("x", text) + `"]`},
		"a long constant":                       {often(5_000, `{"const":`+numbers+`}`), numbers},
		"a long text":                           {often(1_000, `{"const":"`+strings.Repeat("x", 100_000)+`"}`), `"` + strings.Repeat("x", 100_000) + `"`},
		"many constants":                        {often(5_000, `{"enum":`+numbers+`}`), `-1`},
		"a long number":                         {often(5_000, `{"multipleOf":3,"minimum":1,"type":["integer","number"]}`), strings.Repeat("9", text)},
		"a pattern, again and again":            {often(5_000, `{"pattern":"(x+x+)+y"}`), `"` + strings.Repeat("x", text) + `"`},
		"a large pattern":                       {`{"pattern":"(x*y*){1000}z"}`, `"` + strings.Repeat("x", text) + `"`},
		"many patterns for a key":               {`{"patternProperties":` + object(1_800, func(i int) string { return "x*" + short(i) }, "{}") + `}`, object(1_000, func(i int) string { return strings.Repeat("x", 500) + short(i) }, "1")},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.schema) > manifest*5/4 {
				t.Fatalf("%d bytes fit into no manifest", len(c.schema))
			}
			s, err := Compile(json.RawMessage(c.schema))
			if err != nil || len(s.Unchecked) > 0 {
				t.Fatalf("%v, %v", err, s)
			}
			bounded(t, func() {
				if err := s.Check([]byte(c.value)); !errors.Is(err, ErrCostly) {
					t.Errorf("%.200v", err)
				}
			})
		})
	}
}

// decimal is a number for each i.
func decimal(i int) string { return fmt.Sprint(i) }

func TestNotAllMismatchesAreCollected(t *testing.T) {
	names := list(10_000, func(i int) string { return quoted(short(i)) })
	for name, c := range map[string]struct{ schema, value string }{
		"required":   {`{"required":` + names + `}`, `{}`},
		"unknown":    {`{"properties":` + object(12, func(i int) string { return strings.Repeat("p", 10_000) + short(i) }, "{}") + `,"additionalProperties":false}`, object(50_000, short, "1")},
		"items":      {`{"items":{"type":"null"}}`, list(50_000, decimal)},
		"everywhere": {often(5_000, `{"required":`+names+`}`), `{}`},
		"by levels":  {`{"allOf":` + list(10, always(`{"required":`+list(60, func(i int) string { return quoted(short(i)) })+`}`)) + `}`, `{}`},
	} {
		s, err := Compile(json.RawMessage(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		bounded(t, func() {
			var e *Error
			if err := s.Check([]byte(c.value)); !errors.As(err, &e) || len(e.Mismatches) != 100 || !e.More || !strings.HasSuffix(e.Error(), "; and more than 95 more") {
				t.Errorf("%s: %.300v", name, err)
			}
		})
	}
}

// What people write must not come near the limits.
func TestLargeParametersOfAPlainSchemaAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ schema, value string }{
		"a long text with a pattern": {`{"pattern":"^[A-Za-z0-9+/]*={0,2}$"}`, `"` + strings.Repeat("x", 4<<20) + `"`},
		"many texts":                 {`{"items":{"type":"string","minLength":1,"pattern":"^[a-z]+$"}}`, list(100_000, always(`"abc"`))},
		"a table":                    {`{"items":{"properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false}}`, list(30_000, always(`{"a":1,"b":"x"}`))},
		"a list that is any":         {`{"type":"array","minItems":1,"prefixItems":[{}],"contains":{}}`, list(1_000_000, always("1"))},
		"names in all writings":      {`{"pattern":"(?i)^[\\p{L}\\p{N} ,.'à-ü-]{1,200}$"}`, `"Zoë"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check([]byte(c.value)); err != nil {
				t.Error(err)
			}
		})
	}
}
