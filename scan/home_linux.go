package scan

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// homeDir is where the skill finds its home; nothing about the path is ours alone.
const homeDir = "/var/home/user"

// Bounds of a decoy home: the disk that it lies on is real.
const (
	maxHomeBytes = 64 << 20
	maxHomeFiles = 10_000
	maxHomeDepth = 64
)

// errHomeFull says that a skill was ended because of what it wrote into the decoy home.
var errHomeFull = fmt.Errorf("scan: more than %d bytes or %d files in the home", maxHomeBytes, maxHomeFiles)

// decoy is a file that is laid out for the skill to find.
type decoy struct {
	name   string // in the home
	mode   os.FileMode
	prefix string // of its canary, and how many random characters follow; 0 is none
	length int
	text   string
}

// decoys are the files of a home that somebody works in. Where the text has %s, a canary stands.
var decoys = []decoy{
	{".ssh/id_ed25519", 0o600, "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMw", 160, "-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n-----END OPENSSH PRIVATE KEY-----\n"},
	{".ssh/id_rsa", 0o600, "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAABFwAAAAdzc2gtcn", 320, "-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n-----END OPENSSH PRIVATE KEY-----\n"},
	{".ssh/id_ed25519.pub", 0o644, "", 0, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4mLrY2U0m1Wc2Qn8mN0b0s3D1uU5bq2wL0p7Q9xK2v user@laptop\n"},
	{".ssh/known_hosts", 0o644, "", 0, "github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl\n"},
	{".ssh/config", 0o600, "", 0, "Host build\n  HostName build.example.com\n  User deploy\n"},
	{".aws/credentials", 0o600, "", 40, "[default]\naws_access_key_id = AKIAJ7Q2M4XW5T3LZB6N\naws_secret_access_key = %s\n"},
	{".aws/config", 0o600, "", 0, "[default]\nregion = eu-central-1\n"},
	{".netrc", 0o600, "", 24, "machine git.example.com\n  login user\n  password %s\n"},
	{".git-credentials", 0o600, "ghp_", 36, "https://user:%s@github.com\n"},
	{".gitconfig", 0o644, "", 0, "[user]\n\tname = User\n\temail = user@example.com\n[credential]\n\thelper = store\n"},
	{".npmrc", 0o600, "npm_", 36, "//registry.npmjs.org/:_authToken=%s\n"},
	{".pypirc", 0o600, "pypi-", 64, "[pypi]\nusername = __token__\npassword = %s\n"},
	{".docker/config.json", 0o600, "", 48, "{\"auths\": {\"registry.example.com\": {\"auth\": \"%s\"}}}\n"},
	{".kube/config", 0o600, "", 48, "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: %s\n"},
	{".config/gcloud/application_default_credentials.json", 0o600, "1//", 64, "{\"type\": \"authorized_user\", \"client_id\": \"764086051850.apps.googleusercontent.com\", \"refresh_token\": \"%s\"}\n"},
	{".config/gh/hosts.yml", 0o600, "gho_", 36, "github.com:\n    user: user\n    oauth_token: %s\n"},
	{".config/google-chrome/Default/Cookies", 0o600, "", 48, "SQLite format 3\x00session=%s\n"},
	{".config/google-chrome/Default/Login Data", 0o600, "", 48, "SQLite format 3\x00password=%s\n"},
	{".mozilla/firefox/k3v1x9q2.default/logins.json", 0o600, "", 48, "{\"logins\": [{\"hostname\": \"https://example.com\", \"encryptedPassword\": \"%s\"}]}\n"},
	{".gnupg/private-keys-v1.d/8C2F.key", 0o600, "", 64, "(private-key (ecc (d #%s#)))\n"},
	{".bash_history", 0o600, "", 24, "ls\ngit pull\nmysql -u root -p%s\n"},
	{".env", 0o600, "", 32, "SECRET_KEY=%s\n"},
	{".bashrc", 0o644, "", 0, "# ~/.bashrc\nalias ll='ls -l'\n"},
	{".profile", 0o644, "", 0, "# ~/.profile\nPATH=\"$HOME/.local/bin:$PATH\"\n"},
	{".zshrc", 0o644, "", 0, "autoload -Uz compinit\n"},
	{"Documents/notes.txt", 0o644, "", 24, "Wi-Fi: %s\n"},
	{"Documents/budget.csv", 0o644, "", 0, "month,amount\n1,100\n2,120\n"},
}

// makeHome fills a directory with decoys.
func makeHome(dir string, secrets map[string]string) error {
	for _, d := range decoys {
		at := filepath.Join(dir, filepath.FromSlash(d.name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		text := d.text
		if d.length > 0 {
			text = fmt.Sprintf(d.text, secrets[d.name])
		}
		if err := os.WriteFile(at, []byte(text), d.mode); err != nil {
			return fmt.Errorf("scan: %w", err)
		}
	}
	return nil
}

// homeSecrets makes what the decoys hold, the same in every run of a scan.
func (c *canaries) homeSecrets() map[string]string {
	secrets := map[string]string{}
	for _, d := range decoys {
		if d.length > 0 {
			secrets[d.name] = c.newCanary("~/"+d.name, d.prefix, d.length)
		}
	}
	return secrets
}

// entry is what a file of the home was.
type entry struct {
	mode fs.FileMode
	sum  string // of its content; where a link leads
}

// look lists a home. It follows no link, and reads of a file at most a mebibyte: what a skill left there is a stranger's.
func look(dir string) (map[string]entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	defer root.Close()
	all := map[string]entry{}
	var bytes int64
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil && name == "." {
			return err
		}
		if err != nil {
			return fs.SkipDir // a directory that nobody may read; it is listed as one
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if bytes += info.Size(); info.Mode().IsRegular() && bytes > maxHomeBytes || len(all) > maxHomeFiles || strings.Count(name, "/") > maxHomeDepth {
			return errHomeFull
		}
		e := entry{mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			e.sum = sumOf(root, name)
		case info.Mode()&fs.ModeSymlink != 0:
			e.sum, _ = root.Readlink(name)
		}
		all[name] = e
		return nil
	})
	if err != nil && !errors.Is(err, errHomeFull) {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return all, err
}

// sumOf is over a file's first mebibyte; a file that cannot be opened has none.
func sumOf(root *os.Root, name string) string {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "unreadable"
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, 1<<20)); err != nil {
		return "unreadable"
	}
	return string(sum.Sum(nil))
}

// change is a file of the home that a run made, changed or removed.
type change struct {
	name string // in the home
	what string // made, changed or removed
}

// changes compares a home with what it was.
func changes(before, after map[string]entry) (all []change) {
	for name, e := range after {
		if old, ok := before[name]; !ok {
			all = append(all, change{name, "made"})
		} else if old != e && !e.mode.IsDir() {
			all = append(all, change{name, "changed"})
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			all = append(all, change{name, "removed"})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return strings.Compare(a.name, b.name) })
	return all
}

// removeHome removes a directory in which a skill may have taken its owner's rights away.
func removeHome(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(at, 0o700) // WalkDir reads a directory after it was here
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}

// isDecoy tells whether a file of the home was laid out by us.
func isDecoy(name string) bool {
	return slices.ContainsFunc(decoys, func(d decoy) bool { return d.name == name })
}

// inHome is the part of a path below a home, ours or the one that the box's account has.
func inHome(p string) (string, bool) {
	for _, home := range []string{homeDir, "/home/skill", "/root"} {
		if rest, ok := strings.CutPrefix(path.Clean(p), home+"/"); ok {
			return rest, true
		}
	}
	return "", false
}
