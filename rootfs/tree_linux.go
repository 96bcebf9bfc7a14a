package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tree is a built root below a directory of the caller's.
type Tree struct {
	Path   string   // the root, for pivot_root(2)
	State  string   // an empty directory beside it, for whoever starts the box
	Output *os.File // the root of /output's tmpfs, reachable after the box is gone
	Result *os.File // likewise of ResultDir
	// Changed is the directory that takes what the skill changes in its bundle, nil where it may change nothing.
	Changed *os.File

	dir      string
	attached bool
	base     int // the tmpfs on dir: it holds everything, and goes with everything on it
	root     int
	image    int
	record   int // the image's, locked as long as the tree may be used
	inputs   int // directories that the skill sees through read-only views
	secrets  int
	params   int
	idmaps   *IDMaps
	keep     bool // idmaps are the caller's
	owner    Owner
}

// Create builds the tree on dir, an empty directory of the caller's in a private mount namespace. After an error nothing stays
// mounted; after success Close unmounts it.
func Create(dir string, s *Spec) (_ *Tree, err error) {
	t := &Tree{dir: dir, Path: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), base: -1, root: -1, image: -1, record: -1, inputs: -1, secrets: -1, params: -1, owner: s.Owner}
	if t.idmaps, t.keep = s.IDMaps, s.IDMaps != nil; !t.keep {
		t.idmaps = &IDMaps{}
	}
	t.idmaps.start(s)
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	steps := []func(*Spec) error{
		t.mountState, t.makeRoot, t.mountBase, t.mountDev, t.mountGPU, t.mountCall, t.mountScratch, t.mountInit, t.mountBundle, t.mountBinds, t.seal,
	}
	for _, step := range steps {
		if err := step(s); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mountState mounts the tmpfs that carries everything else of the box: taking it away takes away the whole tree in one call, and
// what a call brings (parameters, inputs, secrets) lies on it, outside the box's root.
func (t *Tree) mountState(*Spec) error {
	mount, err := newFilesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, setting{"source", "tmpfs"},
		setting{"mode", "0711"}, setting{"size", strconv.FormatInt(maxCallBytes, 10)}, setting{"nr_inodes", "2048"})
	if err != nil {
		return err
	}
	t.base = mount
	if err := attach(mount, unix.AT_FDCWD, t.dir); err != nil {
		return err
	}
	t.attached = true
	for _, name := range []string{"root", "state"} {
		if err := unix.Mkdirat(t.base, name, 0o711); err != nil {
			return fmt.Errorf("rootfs: %w", err)
		}
	}
	return nil
}

// rootLinks lead to what the skill may write, and to what its call brings.
var rootLinks = map[string]string{"var/tmp": "../tmp", strings.TrimPrefix(InputDir, "/"): "run/input"}

// makeRoot mounts what becomes /: an empty tmpfs, or an image.
func (t *Tree) makeRoot(s *Spec) error {
	if s.Image != nil {
		return t.mountImage(s)
	}
	mount, err := newFilesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, setting{"source", "tmpfs"}, setting{"mode", "0755"},
		setting{"size", "4194304"}, setting{"nr_inodes", "4096"}, owner("uid", s.Owner.RootUID), owner("gid", s.Owner.RootGID))
	if err != nil {
		return err
	}
	t.root = mount
	if err := attach(mount, unix.AT_FDCWD, t.Path); err != nil {
		return err
	}
	for _, name := range []string{"proc", "dev", "etc", "run", "home", "var"} {
		if err := unix.Mkdirat(t.root, name, 0o755); err != nil {
			return fmt.Errorf("rootfs: mkdir /%s: %w", name, err)
		}
	}
	for link, target := range rootLinks {
		if err := unix.Symlinkat(target, t.root, link); err != nil {
			return fmt.Errorf("rootfs: /%s: %w", link, err)
		}
	}
	return nil
}

func owner(key string, id int) setting { return setting{key, strconv.Itoa(id)} }

// directory makes a mount point and its parents below the root. The root is our own tmpfs, so a path can only leave it through
// something mounted from the host: RESOLVE_NO_XDEV and RESOLVE_NO_SYMLINKS refuse that.
func (t *Tree) directory(p string, file bool) error {
	parent, err := unix.Dup(t.root)
	if err != nil {
		return err
	}
	defer func() { unix.Close(parent) }()
	parts := strings.Split(strings.Trim(p, "/"), "/")
	for i, name := range parts {
		if file && i == len(parts)-1 {
			fd, err := unix.Openat(parent, name, unix.O_CREAT|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
			if err != nil {
				return fmt.Errorf("rootfs: mount point %s: %w", p, err)
			}
			unix.Close(fd)
			return nil
		}
		if err := unix.Mkdirat(parent, name, 0o755); err != nil && err != unix.EEXIST {
			return fmt.Errorf("rootfs: mount point %s: %w", p, err)
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
		next, err := unix.Openat2(parent, name, &how)
		if err == unix.EXDEV && i == len(parts)-1 {
			return nil // already a mount point: the new mount covers it
		}
		if err != nil {
			return fmt.Errorf("rootfs: mount point %s lies inside something mounted from the host (%w)", p, err)
		}
		unix.Close(parent)
		parent = next
	}
	return nil
}

// place attaches a detached mount at a path of the tree and closes its descriptor.
func (t *Tree) place(mount int, p string, file bool) error {
	defer unix.Close(mount)
	if err := t.directory(p, file); err != nil {
		return err
	}
	return attach(mount, t.root, strings.TrimPrefix(p, "/"))
}
