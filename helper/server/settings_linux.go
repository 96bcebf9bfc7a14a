package server

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"skillbox/helper"
	"skillbox/policy"
	"skillbox/sandbox"
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

// auditPlace is where a caller's audit log lies, and the file that says how it is kept: what a skill did would be the skill's to say if it could write there.
type auditPlace struct{ dir, config string }

func placeOf(r *helper.Request) auditPlace { return auditPlace{r.AuditDir, r.AuditConfig} }

// reachedBy says which of them a bind for writing leads to, lies in or holds, "" for none: by its path, for what is not there yet, and by what it
// is, for a directory can be mounted twice.
func (l auditPlace) reachedBy(field, host string, found sandbox.Source) string {
	if field != "filesystem.write" {
		return ""
	}
	for _, place := range []struct{ path, what string }{{l.dir, "the audit log is at " + l.dir}, {l.config, "how the audit log is kept is said in " + l.config}} {
		path := place.path
		if !filepath.IsAbs(path) {
			continue
		}
		if resolved, err := filepath.EvalSymlinks(path); err == nil { // binds have no links in them
			path = resolved
		}
		path, host = filepath.Clean(path), filepath.Clean(host)
		if isInside(path, host) || isInside(host, path) {
			return place.what
		}
		for dir := path; ; dir = filepath.Dir(dir) {
			var st unix.Stat_t
			if unix.Stat(dir, &st) == nil && st.Dev == found.Dev && st.Ino == found.Ino {
				return place.what
			}
			if dir == "/" {
				break
			}
		}
	}
	return ""
}

// way are paths by which the files of --policy and --manifest are found, and what each is: by another mount a directory has another name.
type way struct {
	paths []string
	files map[[2]uint64]bool // true is one that is no directory
}

// lead looks at the paths, if there are binds to compare them with.
func lead(paths []string, binds int) way {
	w := way{paths, map[[2]uint64]bool{}}
	if binds == 0 {
		return w
	}
	for _, p := range paths {
		var st unix.Stat_t
		if filepath.IsAbs(p) && unix.Lstat(p, &st) == nil {
			w.files[[2]uint64{st.Dev, st.Ino}] = st.Mode&unix.S_IFMT != unix.S_IFDIR
		}
	}
	return w
}

// has says what a bind has to do with the files: it "is" or "holds" one, "" for nothing. To hold one is wrong only for writing.
func (w way) has(field, host string, found sandbox.Source) string {
	file, there := w.files[[2]uint64{found.Dev, found.Ino}]
	switch {
	case there && file:
		return "is"
	case field == "filesystem.write" && (there || slices.Contains(w.paths, filepath.Clean(host))):
		return "holds"
	}
	return ""
}

func isInside(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
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
