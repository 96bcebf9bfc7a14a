package bundle

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cache remembers, for each bundle directory, the hashes of the files in it, so that an unchanged bundle is not read again.
// A nil Cache remembers nothing. It is safe for concurrent use, also by several processes.
type Cache struct{ dir string }

// OpenCache returns the cache kept in dir, which should belong to the caller and admit nobody else; it is made when it is first written
// to. "" is no cache. A cache that is damaged, or that somebody else owns or could have written to, is not an error: it is not looked at.
func OpenCache(dir string) *Cache {
	if dir == "" {
		return nil
	}
	return &Cache{dir: dir}
}

// One file for each bundle, named after its root's device and inode:
//
//	"skillbox-cache-1\n", uint64 device, uint64 inode of the root, uint32 number of records
//	records, ascending: the stamp, then the 32 bytes of the content's SHA-256
//	SHA-256 of everything before it, against damage: who can write here needs no forgery
const (
	cacheMagic  = "skillbox-cache-1\n"
	cacheHeader = len(cacheMagic) + 8 + 8 + 4
	recordSize  = stampSize + sha256.Size
	cacheSuffix = ".bundle"
	maxBundles  = 256 // files kept; the oldest go first
)

// stamp tells one state of one file from every other, as far as stat can: device, inode, size, mtime and ctime in nanoseconds.
// Big-endian, so that sorting stamps is comparing bytes.
type stamp [stampSize]byte

const stampSize = 5 * 8

func stampOf(st *unix.Statx_t) stamp {
	return newStamp(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Size, st.Mtime.Sec*1e9+int64(st.Mtime.Nsec), st.Ctime.Sec*1e9+int64(st.Ctime.Nsec))
}

func stampOfStat(st *unix.Stat_t) stamp {
	return newStamp(st.Dev, st.Ino, uint64(st.Size), st.Mtim.Nano(), st.Ctim.Nano())
}

func newStamp(dev, ino, size uint64, mtime, ctime int64) (s stamp) {
	binary.BigEndian.PutUint64(s[0:], dev)
	binary.BigEndian.PutUint64(s[8:], ino)
	binary.BigEndian.PutUint64(s[16:], size)
	binary.BigEndian.PutUint64(s[24:], uint64(mtime))
	binary.BigEndian.PutUint64(s[32:], uint64(ctime))
	return s
}

// settled tells whether a later change of the file must show in its ctime. Kernels stamp files with the time of their last tick, up to
// 10 ms ago, so that two changes within it look alike; a time of whole seconds is likely to come from a file system that keeps no more.
func (s stamp) settled(now time.Time) bool {
	ctime := int64(binary.BigEndian.Uint64(s[32:]))
	return time.Unix(0, ctime).Add(tick(ctime)).Before(now)
}

// tick is how long after ctime, in nanoseconds, a change may have the same one.
func tick(ctime int64) time.Duration {
	if ctime%1e9 == 0 {
		return 2 * time.Second
	}
	return 20 * time.Millisecond
}

// identity is a bundle's root: what its cache is filed under.
type identity struct {
	dev, ino uint64
	keeps    bool // whether its file system's stat can be believed
	ctime    int64
}

func (id identity) file() string { return fmt.Sprintf("%x-%x%s", id.dev, id.ino, cacheSuffix) }

func identify(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return identity{}, err
	}
	id := identity{dev: st.Dev, ino: st.Ino, ctime: st.Ctim.Nano()}
	switch uint32(fs.Type) {
	case unix.FUSE_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC:
		// Somebody else answers, by a clock of his own, and may answer the same and serve something new.
	default:
		id.keeps = true
	}
	return id, nil
}

// known is one cache file in memory.
type known struct{ records []byte }

func (k *known) len() int {
	if k == nil {
		return 0
	}
	return len(k.records) / recordSize
}

func (k *known) lookup(s stamp) (sum [sha256.Size]byte, ok bool) {
	n := k.len()
	i := sort.Search(n, func(i int) bool { return bytes.Compare(k.records[i*recordSize:][:stampSize], s[:]) >= 0 })
	if i == n || !bytes.Equal(k.records[i*recordSize:][:stampSize], s[:]) {
		return sum, false
	}
	copy(sum[:], k.records[i*recordSize+stampSize:])
	return sum, true
}

// load returns what is remembered of a bundle, nil when that is nothing, or nothing to be believed.
func (c *Cache) load(id identity, files int) *known {
	root := c.open()
	if root == nil {
		return nil
	}
	defer root.Close()
	f, err := root.OpenFile(id.file(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	limit := int64(cacheHeader) + int64(files)*int64(recordSize) + sha256.Size
	if err != nil || !info.Mode().IsRegular() || !private(info) || info.Size() > limit {
		return nil
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil
	}
	return decode(id, data)
}

// decode checks a cache file from end to end; nil is any doubt.
func decode(id identity, data []byte) *known {
	if len(data) < cacheHeader+sha256.Size {
		return nil
	}
	body, trailer := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	n := binary.BigEndian.Uint32(body[cacheHeader-4:])
	if !bytes.Equal(body[:cacheHeader], header(id, n)) || len(body)-cacheHeader != int(n)*recordSize {
		return nil
	}
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], trailer) {
		return nil
	}
	return &known{records: body[cacheHeader:]}
}

func header(id identity, n uint32) []byte {
	h := make([]byte, 0, cacheHeader)
	h = append(h, cacheMagic...)
	h = binary.BigEndian.AppendUint64(h, id.dev)
	h = binary.BigEndian.AppendUint64(h, id.ino)
	return binary.BigEndian.AppendUint32(h, n)
}

// encode makes a cache file.
func encode(id identity, keep []*entry) []byte {
	slices.SortFunc(keep, func(a, b *entry) int { return bytes.Compare(a.stamp[:], b.stamp[:]) })
	data := make([]byte, 0, cacheHeader+len(keep)*recordSize+sha256.Size)
	data = append(data, header(id, uint32(len(keep)))...)
	for _, e := range keep {
		data = append(append(data, e.stamp[:]...), e.hash[:]...)
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

// save remembers the entries that may be, unless they are what is known already; cached is how many of them came from there.
// A cache that cannot be written costs time and nothing else, so that is not an error.
func (c *Cache) save(id identity, old *known, entries []*entry, cached int) {
	var keep []*entry
	for _, e := range entries {
		if e.fresh {
			keep = append(keep, e)
		}
	}
	if c == nil || len(keep) == cached && cached == old.len() || os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	root := c.open()
	if root == nil {
		return
	}
	defer root.Close()
	temp := "new-" + rand.Text()
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(encode(id, keep))
	if closed := f.Close(); err != nil || closed != nil || root.Rename(temp, id.file()) != nil {
		root.Remove(temp)
		return
	}
	c.prune(root)
}

// prune removes the oldest of too many cache files, and what a killed writer left.
func (c *Cache) prune(root *os.Root) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return
	}
	var bundles []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
		case strings.HasSuffix(e.Name(), cacheSuffix):
			bundles = append(bundles, info)
		case strings.HasPrefix(e.Name(), "new-") && time.Since(info.ModTime()) > time.Hour:
			root.Remove(e.Name())
		}
	}
	if len(bundles) <= maxBundles {
		return
	}
	slices.SortFunc(bundles, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, b := range bundles[:len(bundles)-maxBundles] {
		root.Remove(b.Name())
	}
}

// open opens the directory, nil when it is not there or not ours alone.
func (c *Cache) open() *os.Root {
	if c == nil {
		return nil
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil
	}
	if info, err := root.Stat("."); err != nil || !private(info) {
		root.Close()
		return nil
	}
	return root
}

// private tells whether a file is ours and nobody else can write it, or read it.
func private(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}
