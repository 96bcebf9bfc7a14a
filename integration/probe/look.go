package main

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// looked is what a program sees of where it runs.
type looked struct {
	Argv  []string          `json:"argv"`
	Dir   string            `json:"dir"`
	Env   []string          `json:"env"`
	Paths map[string]string `json:"paths"`
}

var _ = register(map[string]func([]string) (any, error){
	"hold": func([]string) (any, error) { // until its input ends
		fmt.Println("holding")
		return waitForEnd(nil)
	},
	"look": func(paths []string) (any, error) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		l := looked{Argv: os.Args, Dir: dir, Env: os.Environ(), Paths: map[string]string{}}
		for _, p := range paths {
			l.Paths[p] = lookAt(p)
		}
		return l, nil
	},
})

// lookAt says what lies at a path.
func lookAt(p string) string {
	info, err := os.Lstat(p)
	if err != nil {
		return answer(err)
	}
	what := fmt.Sprintf("%v ", info.Mode())
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		target, err := os.Readlink(p)
		return what + "-> " + target + answerIf(err)
	case fs.ModeDir:
		entries, err := os.ReadDir(p)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return what + strings.Join(names, " ") + answerIf(err)
	case 0:
		text, err := os.ReadFile(p)
		if len(text) > 200 {
			text = text[:200]
		}
		return what + string(text) + answerIf(err)
	}
	return what
}

func answerIf(err error) string {
	if err == nil {
		return ""
	}
	return answer(err)
}
