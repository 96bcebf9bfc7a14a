package main

import (
	"os"
	"strings"
)

var _ = register(map[string]func([]string) (any, error){
	"environ": func([]string) (any, error) { return os.Environ(), nil },
	"status": func([]string) (any, error) {
		text, err := os.ReadFile("/proc/self/status")
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				fields[name] = strings.TrimSpace(value)
			}
		}
		return fields, err
	},
	"read": func(paths []string) (any, error) {
		got := map[string]string{}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				got[p] = answer(err)
				continue
			}
			got[p] = "read: " + string(data)
		}
		return got, nil
	},
})
