// Package rootfs builds the tree that a box sees as /: an empty tmpfs with only what the plan puts into it.
//
// Everything is mounted with the descriptor-based mount API (Linux 5.12: mount_setattr(2)), so a source is opened once, checked by
// descriptor and mounted from that same descriptor; nothing is looked up twice. The tree lives in the caller's private mount
// namespace below a directory of the caller's, and is gone with that namespace.
package rootfs

// Where the fixed parts of a box's tree are.
const (
	SkillDir   = "/skill"
	HomeDir    = "/home/skill"
	InputDir   = "/input"
	OutputDir  = "/output"
	SecretsDir = "/run/secrets"
	ParamsFile = "/run/skillbox/params.json"
	ResultDir  = "/run/skillbox/result"
	ResultFile = ResultDir + "/result.json"
	ShimDir    = "/run/skillbox"
	ProgramDir = ShimDir + "/bin"
)

// Owner is who owns what inside the box, as ids of the caller's (skillboxd's) user namespace.
type Owner struct {
	SkillUID, SkillGID int // the skill: its home, /tmp, /output
	RootUID, RootGID   int // box uid 0: everything generated
}

// Bind puts a host directory or file into the box.
type Bind struct {
	Source   Source
	Path     string // in the box: absolute and clean
	Writable bool
	// MapUID and MapGID, where IDMap is set, are the owner on disk that appears as the skill.
	IDMap          bool
	MapUID, MapGID int
}

// Source is a host path that was opened before: the path is followed again in the caller's mount namespace, without symbolic
// links, and must lead to the same inode. A descriptor from another mount namespace cannot be cloned by open_tree(2).
type Source struct {
	Path string
	Dev  uint64
	Ino  uint64
}

// Image is an unpacked image: a directory that is a root file system, and that nobody changes.
type Image struct {
	Digest string // what names it to people
	ID     string // of what lies in the directory
	Source Source
}

// GPU is what a box needs of the host's graphics processors.
type GPU struct {
	Nodes     []Node
	Libraries []Library // of the driver, for bases that are not the host's
}

// Node is a device of the host's, by its name below /dev.
type Node struct {
	Name         string
	Major, Minor uint32
}

// Library is a regular file of the host's, with the name by which a program's loader asks for it.
type Library struct {
	Name string
	Source
}

// LibraryDir is where a driver's libraries lie in a box whose base has none.
const LibraryDir = "/gpu"

// Spec describes a tree. Sizes are bytes; zero is refused, never unlimited.
type Spec struct {
	Base        string // "host" or "dir:/absolute/path"; what Image is called
	Image       *Image `json:",omitempty"` // the root, instead of Base
	Owner       Owner
	BoxUID      int // the skill's ids inside the box
	BoxGID      int
	Bundle      Bind   // Path is SkillDir
	BundleAt    string // where the bundle appears besides; below HomeDir or a path that nothing else fills. "" is nowhere
	CopyOnWrite bool   // the bundle appears writable; changes go to a tmpfs of TmpSize and are lost
	Binds       []Bind
	TmpSize     int64
	HomeSize    int64
	OutputSize  int64
	ResultSize  int64
	Files       map[string][]byte // generated read-only files below /run/skillbox, by absolute path
	Programs    map[string][]byte `json:"-"` // generated programs for ProgramDir, by file name; of each build the same
	Init        string            // host path of init's binary, mounted at InitPath
	InitPath    string
	Hostname    string
	GPU         *GPU `json:",omitempty"` // what is shown of the host's; nil is none

	// IDMaps, unless nil, are the caller's for Owner, and no other tree's at the same time; it closes them.
	IDMaps *IDMaps `json:"-"`
}

// IDMaps are the user namespaces in which the owner of a bind's source is the skill, by that owner's uid and gid. They are for one Owner, and
// may serve several trees one after the other: each takes a process, and where the caller is large that is dear. The zero value is ready
// for use; Close is safe for it, too.
type IDMaps struct{ byOwner map[[2]int]*idmap }

type idmap struct {
	fd   int
	err  error
	done chan struct{}
}

// Scratch are the mounts on which a skill may write to file systems in memory, if they are writable. The bundle's is one where it is copied
// on writing.
func Scratch() []string { return []string{"/tmp", HomeDir, OutputDir, ResultDir, "/dev/shm", SkillDir} }

// Writable lists the mount points of a tree where a skill may write.
func (s *Spec) Writable() []string {
	paths := []string{"/tmp", HomeDir, OutputDir, ResultDir, "/dev/shm", "/dev/pts", "/proc"}
	if s.CopyOnWrite {
		paths = append(paths, SkillDir)
		if s.BundleAt != "" {
			paths = append(paths, s.BundleAt)
		}
	}
	for _, b := range s.Binds {
		if b.Writable {
			paths = append(paths, b.Path)
		}
	}
	return paths
}

// devices are the nodes of /dev by name, with the numbers that a host's node must have before it is trusted (see devices.txt of
// the kernel). A node that is something else would give the box another device.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3},
	{"zero", 1, 5},
	{"full", 1, 7},
	{"random", 1, 8},
	{"urandom", 1, 9},
	{"tty", 5, 0},
}

// Devices lists the mount points of a tree that carry device nodes.
func (s *Spec) Devices() []string {
	paths := []string{"/dev/pts"}
	for _, d := range devices {
		paths = append(paths, "/dev/"+d.name)
	}
	if s.GPU != nil {
		for _, n := range s.GPU.Nodes {
			paths = append(paths, "/dev/"+n.Name)
		}
	}
	return paths
}
