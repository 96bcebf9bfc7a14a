package policy

import (
	"strings"
	"testing"
)

func TestIngressIsAListOfPortsThatABoxCanBind(t *testing.T) {
	p := parse(t, body("network: {ingress: [{port: 8080, name: web}, {port: 65535}]}"))
	for asked, want := range map[string]int64{"8080": 8080, "web": 8080, "65535": 65535} {
		if got, ok := p.Network.FindIngress(asked); !ok || got.Port != want {
			t.Errorf("%s: %+v, %v", asked, got, ok)
		}
	}
	for _, asked := range []string{"", "80", "08080", "WEB", "8080 "} {
		if got, ok := p.Network.FindIngress(asked); ok {
			t.Errorf("%q: %+v", asked, got)
		}
	}
	for text, want := range map[string]string{
		"[{port: 1023}]":                        "not within 1024 to 65535",
		"[{port: 65536}]":                       "not within",
		"[{port: 0}]":                           "not within",
		"[{port: \"8080\"}]":                    "not a whole number",
		"[{name: web}]":                         "names no port",
		"[{port: 8080}, {port: 8080, name: b}]": "port 8080 is listed twice",
		"[{port: 8080, name: a}, {port: 8081, name: a}]":         "the name a is given twice",
		"[{port: 8080, name: 8080}]":                             "is not text",
		"[{port: 8080, name: \"8080\"}]":                         "no name of a port",
		"[{port: 8080, name: \"../x\"}]":                         "no name of a port",
		"[{port: 8080, host: 0.0.0.0}]":                          "unknown key",
		"[8080]":                                                 "a mapping",
		"[" + strings.Repeat("{port: 8080}, ", 8) + "{port: 1}]": "more than 8",
	} {
		if _, err := Parse("p.yaml", []byte(body("network: {ingress: "+text+"}"))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

func TestIngressIsBoundedByTheCeilingAndNarrowedByTheSkill(t *testing.T) {
	two := parse(t, body("network: {ingress: [{port: 8080, name: web}, {port: 9090}]}"))
	for _, c := range []struct{ ceiling, declared, want, refused string }{
		{"", "", "8080 9090", ""},
		{"network: {ingress: []}", "", "", "9090 is not permitted"},
		{"network: {ingress: [{port: 8080}]}", "", "", "9090 is not permitted"},
		{"network: {ingress: [{port: 8080}, {port: 9090}, {port: 7070}]}", "", "8080 9090", ""},
		{"", "network: {ingress: [{port: 9090, name: mine}, {port: 7070}]}", "9090", ""},
		{"", "network: {ingress: []}", "", ""},
	} {
		var ceiling, declared *Policy
		if c.ceiling != "" {
			ceiling = parse(t, body(c.ceiling))
		}
		if c.declared != "" {
			declared = parse(t, body(c.declared))
		}
		g, err := Grant(ceiling, two, declared)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if got := strings.ReplaceAll(numbers(g.Policy.Network.Ingress), ",", ""); got != c.want && !(c.want == "" && got == nothing) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	// A skill that declares a port where the operator names none gets none.
	g, err := Grant(nil, nil, two)
	if err != nil || len(g.Policy.Network.Ingress) > 0 || len(g.Requested) != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}
