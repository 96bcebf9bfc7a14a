package wrap

import (
	"fmt"
	"os"
	"strings"

	"skillbox/helper"
)

// Binds are what the flags --ro and --rw name: PATH, which the server finds at the same place, or PATH:INSIDE.
func Binds(ro, rw []string) ([]helper.Bind, error) {
	var all []helper.Bind
	for _, list := range []struct {
		flag  string
		words []string
	}{{"--ro", ro}, {"--rw", rw}} {
		for _, word := range list.words {
			bind, err := bindOf(list.flag, word)
			if err != nil {
				return nil, err
			}
			bind.Write = list.flag == "--rw"
			all = append(all, bind)
		}
	}
	return all, nil
}

func bindOf(flag, word string) (helper.Bind, error) {
	host, inside, given := strings.Cut(word, ":")
	if _, err := os.Lstat(word); err == nil {
		host, given = word, false // a path with a colon
	}
	path, err := realPath(host)
	if err != nil {
		return helper.Bind{}, fmt.Errorf("%s: %w", flag, err)
	}
	if !given {
		inside = path
	}
	return helper.Bind{Flag: flag, Host: path, Path: inside}, nil
}
