package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

var _ = register(map[string]func([]string) (any, error){"carry": carry})

// carry gives back what a call brought, args[0] among it, and lists what it finds where a call can leave something. Then it leaves
// something there itself. What it gives back is the result file too.
func carry(args []string) (any, error) {
	params, err := os.ReadFile(os.Getenv("SKILLBOX_PARAMS_FILE"))
	if err != nil {
		return nil, err
	}
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	secret, err := os.ReadFile("/run/secrets/TOKEN")
	if err != nil {
		return nil, err
	}
	input, err := os.ReadFile("/input/in")
	if err != nil {
		return nil, err
	}
	left := ""
	for _, dir := range []string{"/tmp", os.Getenv("HOME"), "/output", "/dev/shm"} {
		names, err := filepath.Glob(dir + "/*")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			left += name + " "
		}
		if err := os.WriteFile(filepath.Join(dir, args[0]), nil, 0o600); err != nil {
			return nil, err
		}
	}
	carried := map[string]any{
		"word": args[0], "params": json.RawMessage(params), "stdin": json.RawMessage(stdin), "env": os.Getenv("NONCE"),
		"secret": string(secret), "input": string(bytes.TrimSpace(input)), "left": left,
	}
	text, err := json.Marshal(carried)
	if err != nil {
		return nil, err
	}
	return carried, os.WriteFile(os.Getenv("SKILLBOX_RESULT_FILE"), text, 0o600)
}
