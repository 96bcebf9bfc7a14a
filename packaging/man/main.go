// man writes skillbox's manual pages from what is told elsewhere: the commands' own help, and the project's documents.
//
//	man -bin BIN -out DIR -version VERSION -date 2006-01-02
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	bin := flag.String("bin", "bin", "`directory` with the programs")
	out := flag.String("out", "bin/man", "`directory` that takes the pages")
	version := flag.String("version", "dev", "`version` in their last line")
	date := flag.String("date", "", "`date` in their last line")
	flag.Parse()
	if err := write(*bin, *out, footer{*version, *date}); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(bin, out string, f footer) error {
	pages := map[string]string{}
	commands, err := readCommands(func(args ...string) (string, error) {
		text, err := exec.Command(filepath.Join(bin, "skillbox"), append(args, "--help")...).Output()
		return string(text), err
	})
	if err != nil {
		return err
	}
	pages["skillbox.1"] = commandPage(commands, f)
	for _, p := range []struct{ name, section, about, source string }{
		{"skillbox-policy", "5", "what a skill may have", "docs/policy.md"},
		{"skillbox-audit", "5", "the log of what skills did, and how it is kept", "docs/audit.md"},
		{"skillboxd", "8", "makes skillbox's sandboxes, and serves the users of a machine", "docs/service.md"},
	} {
		text, err := os.ReadFile(p.source)
		if err != nil {
			return err
		}
		page, err := documentPage(p.name, p.section, p.about, string(text), f)
		if err != nil {
			return fmt.Errorf("%s: %w", p.source, err)
		}
		pages[p.name+"."+p.section] = page
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, page := range pages {
		if err := os.WriteFile(filepath.Join(out, name), []byte(page), 0o644); err != nil {
			return err
		}
	}
	return nil
}
