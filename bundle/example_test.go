package bundle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAnExampleOfManyRequiredNamesIsMadeInTheirTime(t *testing.T) {
	var properties, required []string
	for i := range 200_000 {
		properties = append(properties, fmt.Sprintf(`"p%06d":{"type":"null"}`, i))
		required = append(required, fmt.Sprintf(`"r%06d"`, i))
	}
	schema := `{"properties":{` + strings.Join(properties, ",") + `,"x":{"type":"boolean"}},"required":[{},` + strings.Join(required, ",") + `,"x"]}`
	began := time.Now()
	if got := ExampleOf(json.RawMessage(schema), false); string(got) != `{"x":true}` {
		t.Errorf("%.100s", got)
	}
	if took := time.Since(began); took > 20*time.Second { // each name looked for in all of them takes minutes
		t.Error(took)
	}
}
