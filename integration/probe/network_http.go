package main

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

var _ = register(map[string]func([]string) (any, error){"get": get})

// get fetches its arguments as any Go program does, and returns status and page, or the error.
func get(urls []string) (any, error) {
	client := &http.Client{Timeout: 5 * time.Second}
	got := map[string]string{}
	for _, u := range urls {
		r, err := client.Get(u)
		if err != nil {
			got[u] = "error: " + err.Error()
			continue
		}
		page, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		r.Body.Close()
		got[u] = fmt.Sprintf("%d %s", r.StatusCode, page)
		if err != nil {
			got[u] = "error: " + err.Error()
		}
	}
	return got, nil
}
