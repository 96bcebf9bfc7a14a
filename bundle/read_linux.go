package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxScripts bounds how many names of scripts/ are looked at.
const maxScripts = 1000

// Read tells what kind of bundle dir is and reads its manifest and, if there is one, its policy.yaml. Nothing else is opened but, for
// their first two bytes, files in scripts/. dir is the bundle's root directory, stays open, and its position is left alone.
// A manifest that is there and is not right is an *Error, never a reason to try the next kind.
func Read(dir *os.File) (*Bundle, error) {
	b, err := detect(dir)
	if err != nil {
		return nil, err
	}
	if err := readPolicy(dir, b); err != nil {
		return nil, err
	}
	if b.Kind != AgentSkill && b.Kind != Command {
		return b, nil
	}
	if b.Scripts, err = scripts(dir); err != nil {
		return nil, err
	}
	if b.Kind == AgentSkill && len(b.Scripts) == 1 {
		b.Command = []string{Dir + "/" + b.Scripts[0]}
	}
	return b, nil
}

func detect(dir *os.File) (*Bundle, error) {
	if data, err := readManifest(dir, skillboxFile); data != nil || err != nil {
		return readWith(readSkillbox, data, err)
	}
	for _, name := range []string{agentSkillFile, agentSkillLow} {
		if data, err := readManifest(dir, name); err != nil {
			return nil, err
		} else if data != nil {
			return readAgentSkill(name, data, titleOf(dir))
		}
	}
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), skillwareCode, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isRegular(st.Mode) {
		if data, err := readManifest(dir, skillwareFile); data != nil || err != nil {
			return readWith(readSkillware, data, err)
		}
	}
	return &Bundle{Kind: Command}, nil
}

func readWith(read func([]byte) (*Bundle, error), data []byte, err error) (*Bundle, error) {
	if err != nil {
		return nil, err
	}
	return read(data)
}

// titleOf is the name of the bundle's directory, made fit to be shown.
func titleOf(dir *os.File) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		name = dir.Name()
	}
	return dirTitle(path.Base(name))
}

// readPolicy makes a policy.yaml of the bundle its declared policy.
func readPolicy(dir *os.File, b *Bundle) error {
	data, err := readManifest(dir, policyFile)
	if data == nil || err != nil {
		return err
	}
	d, err := parse(policyFile, data)
	if err != nil {
		return err
	}
	if b.Declared != nil {
		e := d.errorf(d.root, "", "the bundle declares a policy twice: here and as security_policy in %s", b.DeclaredFile)
		e.Hint = "keep one of the two"
		return e
	}
	b.Declared, b.DeclaredFile = d.root, policyFile
	return nil
}

// readManifest returns the content of a small regular file, nil when there is none of that name, and an error for anything else.
func readManifest(dir *os.File, name string) ([]byte, error) {
	f, err := openRegular(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, sysError(name, err)
	}
	if len(data) > maxManifest {
		return nil, &Error{File: name, Message: "is larger than 256 KiB"}
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// openRegular opens a file that must be a regular one. It is looked at before it is opened, since opening a device can act on it, and
// again afterwards, since it may have been exchanged in between; a FIFO put there at that moment does not block.
func openRegular(dir *os.File, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		return nil, sysError(name, err)
	}
	if !isRegular(st.Mode) {
		return nil, refuse(name, "is "+typeName(st.Mode)+", and must be a regular file", "")
	}
	fd, err := openat(int(dir.Fd()), name, unix.O_RDONLY)
	if err != nil {
		return nil, sysError(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Fstat(fd, &st); err != nil || !isRegular(st.Mode) {
		f.Close()
		return nil, refuse(name, changed, "")
	}
	return f, nil
}

// scripts lists the regular files directly in scripts/ that look as if they could be run.
func scripts(dir *os.File) ([]string, error) {
	fd, err := openat(int(dir.Fd()), scriptsDir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil // none, or not a directory: then it is no place for scripts
	}
	if err != nil {
		return nil, sysError(scriptsDir, err)
	}
	d := os.NewFile(uintptr(fd), scriptsDir)
	defer d.Close()
	names, err := d.Readdirnames(maxScripts + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, sysError(scriptsDir, err)
	}
	if len(names) > maxScripts {
		return nil, refuse(scriptsDir, "has more than 1000 entries", "")
	}
	var found []string
	for _, n := range names {
		if BadName(n) == "" && runnable(d, n) {
			found = append(found, path.Join(scriptsDir, n))
		}
	}
	slices.Sort(found)
	return found, nil
}

// interpreted are the extensions for which the box has an interpreter to try when a file has no exec bit.
var interpreted = []string{".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl"}

// runnable tells whether a file is meant to be started: it has an exec bit, a known extension, or begins with #!.
// Python's __init__.py and hidden files are parts of something else.
func runnable(d *os.File, name string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || !isRegular(st.Mode) {
		return false
	}
	switch {
	case name[0] == '.', name == "__init__.py":
		return false
	case st.Mode&0o111 != 0, slices.Contains(interpreted, strings.ToLower(path.Ext(name))):
		return true
	}
	f, err := openRegular(d, name)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	_, err = io.ReadFull(f, head[:])
	return err == nil && bytes.Equal(head[:], []byte("#!"))
}
