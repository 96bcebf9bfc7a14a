package server

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/policy"
)

// obeyed are names that programs of a developer's machine look for in a directory and do as they say: a shell, git, an editor, a
// package manager, an agent. Who may write one of them runs commands outside the box, as whoever works there next.
var obeyed = []string{
	".git", ".gitconfig", ".gitmodules", ".hg", ".github", ".gitlab-ci.yml", ".husky", ".pre-commit-config.yaml",
	".claude", ".codex", ".cursor", ".cursorrules", ".gemini", ".mcp.json", "AGENTS.md", "CLAUDE.md", "GEMINI.md",
	".vscode", ".idea", ".devcontainer", ".devcontainer.json", ".vimrc", ".exrc", ".editorconfig",
	".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile",
	".npmrc", ".yarnrc", ".yarnrc.yml", "package.json", "pyproject.toml", "setup.py", "conftest.py", "Makefile", ".cargo",
}

// handsOut says which of them a bind for writing would hand out without saying dangerous, "" for none: one that lies in the
// directory, or one that its path leads into. What does not exist yet is not found.
func handsOut(field string, bind policy.Bind) string {
	if field != "filesystem.write" || bind.Dangerous {
		return ""
	}
	host := bind.Host
	for part := range strings.SplitSeq(host, "/") {
		if slices.Contains(obeyed, part) {
			return fmt.Sprintf("%s lies in %s", host, part)
		}
	}
	dir, err := unix.Openat2(unix.AT_FDCWD, host, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "" // a file, or gone since it was identified, which is found out when it is mounted
	}
	defer unix.Close(dir)
	for _, name := range obeyed {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return fmt.Sprintf("%s holds %s", host, name)
		}
	}
	return ""
}
