package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"skillbox/seccomp"
)

var _ = register(map[string]func([]string) (any, error){
	"syscalls":   func([]string) (any, error) { return make1(tries()), nil },
	"harmless":   func([]string) (any, error) { return make1(harmless()), nil },
	"forms":      forms,
	"foreign":    foreign,
	"x32":        func([]string) (any, error) { return x32(), nil },
	"memfd-exec": memfdExec,
	"terminal":   terminal,
	"pagecache":  pagecache,
	"ioctls":     ioctls,
	"setid":      setID,
})

// A try is one call; its key begins with the number of the threat.
type try struct {
	key  string
	call func() string
}

func make1(all []try) map[string]string {
	got := map[string]string{}
	for _, t := range all {
		got[t.key] = t.call()
	}
	return got
}

// sys makes a call by name: "ok" or the errno's name, "absent" where this architecture has no such call. Byte slices are passed
// by their address.
func sys(name string, args ...any) string {
	_, answer := sysFD(name, args...)
	return answer
}

func sysFD(name string, args ...any) (uintptr, string) {
	c, known := seccomp.NativeCall(name)
	if !known {
		return 0, "absent"
	}
	var words [6]uintptr
	var texts [][]byte
	for i, a := range args {
		switch a := a.(type) {
		case int:
			words[i] = uintptr(a)
		case uintptr:
			words[i] = a
		case []byte:
			words[i] = uintptr(unsafe.Pointer(&a[0]))
		case string:
			texts = append(texts, []byte(a+"\x00"))
			words[i] = uintptr(unsafe.Pointer(&texts[len(texts)-1][0]))
		}
	}
	r, _, errno := unix.Syscall6(uintptr(c.Nr), words[0], words[1], words[2], words[3], words[4], words[5])
	runtime.KeepAlive(args)
	runtime.KeepAlive(texts)
	if errno != 0 {
		return 0, unix.ErrnoName(errno)
	}
	return r, "ok"
}

func call(key, name string, args ...any) try {
	return try{key, func() string { return sys(name, args...) }}
}

// harmless are those that may also be made outside a box, even by root: they change nothing beyond this process.
func harmless() []try {
	attr := make([]byte, 128)
	binary.NativeEndian.PutUint32(attr[0:], unix.BPF_MAP_TYPE_ARRAY)
	binary.NativeEndian.PutUint32(attr[4:], 4)
	binary.NativeEndian.PutUint32(attr[8:], 8)
	binary.NativeEndian.PutUint32(attr[12:], 1)
	all := []try{
		call("44 io_uring_setup", "io_uring_setup", 4, make([]byte, 120)),
		call("52 packet raw", "socket", unix.AF_PACKET, unix.SOCK_RAW, 0),
		call("52 packet dgram", "socket", unix.AF_PACKET, unix.SOCK_DGRAM, 0),
		call("54 route", "socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE),
		call("54 usersock", "socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_USERSOCK),
		call("54 generic", "socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC),
		call("54 uevent", "socket", unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_KOBJECT_UEVENT),
		call("54 audit", "socket", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		call("58 map", "bpf", unix.BPF_MAP_CREATE, attr, 72),
		call("60 user mode only", "userfaultfd", 1),
		call("60 userfaultfd", "userfaultfd", 0),
		call("61 get session", "keyctl", unix.KEYCTL_GET_KEYRING_ID, int(unix.KEY_SPEC_PROCESS_KEYRING), 0),
		call("61 search", "keyctl", unix.KEYCTL_SEARCH, int(unix.KEY_SPEC_SESSION_KEYRING), "user", "nobody-has-this", 0),
		call("63 kcmp", "kcmp", os.Getpid(), os.Getpid(), 0, 0, 0),
		{"63 pidfd_getfd", func() string {
			fd, err := unix.PidfdOpen(os.Getpid(), 0)
			if err != nil {
				return "pidfd_open: " + answer(err)
			}
			return sys("pidfd_getfd", fd, 0, 0)
		}},
		call("66 modify_ldt", "modify_ldt", 0, make([]byte, 16), 16),
		call("67 vmsplice", "vmsplice", 1, make([]byte, 16), 0, 0),
		call("70 get_mempolicy", "get_mempolicy", 0, 0, 0, 0, 0),
		call("70 set_mempolicy", "set_mempolicy", 0, 0, 0),
		call("70 migrate_pages", "migrate_pages", 0, 0, 0, 0),
		{"66 ADDR_NO_RANDOMIZE", func() string { return personality(0x0040000) }},
		{"66 READ_IMPLIES_EXEC", func() string { return personality(0x0400000) }},
		{"66 PER_LINUX32", func() string { return personality(0x8) }},
	}
	return all
}

// personality sets one and takes it back.
func personality(p int) string {
	got := sys("personality", p)
	sys("personality", 0)
	return got
}

// tries is all of it. Made by root outside a box, some would stop the machine.
func tries() []try {
	all := append(harmless(),
		call("45 io_uring_enter", "io_uring_enter", 3, 1, 0, 0, 0),
		call("45 io_uring_register", "io_uring_register", 3, 0, 0, 0),
		call("58 program", "bpf", unix.BPF_PROG_LOAD, make([]byte, 128), 128),
		try{"60 /dev/userfaultfd", func() string { return opened("/dev/userfaultfd", unix.O_RDWR) }},
		call("61 join session", "keyctl", unix.KEYCTL_JOIN_SESSION_KEYRING, 0),
		call("61 add_key", "add_key", "user", "skillbox", "x", 1, int(unix.KEY_SPEC_PROCESS_KEYRING)),
		call("61 request_key", "request_key", "user", "skillbox", 0, 0),
		try{"63 pidfd_getfd of pid 1", func() string {
			fd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return "pidfd_open: " + answer(err)
			}
			return sys("pidfd_getfd", fd, 0, 0)
		}},
		call("63 kcmp of pid 1", "kcmp", os.Getpid(), 1, 0, 0, 0),
		call("63 process_madvise", "process_madvise", 1, 0, 0, unix.MADV_COLD, 0),
		call("63 process_vm_readv", "process_vm_readv", 1, make([]byte, 16), 1, make([]byte, 16), 1, 0),
		call("63 ptrace", "ptrace", unix.PTRACE_SEIZE, 1, 0, 0),
		call("66 ldt write", "modify_ldt", 1, make([]byte, 16), 16),
		call("70 mbind", "mbind", 0, 4096, 0, 0, 0, 0),
		call("70 move_pages", "move_pages", 0, 0, 0, 0, 0, 0),
		try{"57 tls on a connection", func() string { return upperProtocol("tls") }},
		try{"57 espintcp on a connection", func() string { return upperProtocol("espintcp") }},
		call("72 TIOCSTI", "ioctl", 0, unix.TIOCSTI, []byte(" ")),
		call("72 TIOCSTI with a high bit", "ioctl", 0, unix.TIOCSTI|1<<40, []byte(" ")),
		call("73 TIOCLINUX", "ioctl", 0, unix.TIOCLINUX, []byte{3}),
		call("75 N_GSM", "ioctl", 0, unix.TIOCSETD, word(21)),
		call("75 N_HDLC", "ioctl", 0, unix.TIOCSETD, word(13)),
		call("75 N_SLIP", "ioctl", 0, unix.TIOCSETD, word(1)),
	)
	for name, family := range map[string]int{"alg": unix.AF_ALG} {
		all = append(all, call("46 "+name, "socket", family, unix.SOCK_SEQPACKET, 0))
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		all = append(all, call(fmt.Sprintf("48 vsock %d", kind), "socket", unix.AF_VSOCK, kind, 0))
	}
	for _, protocol := range []int{unix.NETLINK_SOCK_DIAG, unix.NETLINK_XFRM, unix.NETLINK_CONNECTOR, unix.NETLINK_NETFILTER, unix.NETLINK_CRYPTO} {
		all = append(all, call(fmt.Sprintf("54 protocol %d", protocol), "socket", unix.AF_NETLINK, unix.SOCK_RAW, protocol))
	}
	for _, family := range []int{
		unix.AF_RXRPC, unix.AF_KEY, unix.AF_BLUETOOTH, unix.AF_CAN, unix.AF_TIPC, unix.AF_RDS, unix.AF_SMC, unix.AF_XDP, unix.AF_NFC, unix.AF_KCM,
		unix.AF_QIPCRTR, unix.AF_AX25, unix.AF_X25, unix.AF_APPLETALK, unix.AF_PPPOX, unix.AF_PHONET, unix.AF_LLC, unix.AF_IEEE802154, unix.AF_MCTP, unix.AF_IB,
	} {
		all = append(all, call(fmt.Sprintf("55 family %d", family), "socket", family, unix.SOCK_DGRAM, 0),
			call(fmt.Sprintf("55 pair %d", family), "socketpair", family, unix.SOCK_DGRAM, 0, make([]byte, 8)))
	}
	for name := range strings.FieldsSeq(`kexec_load kexec_file_load init_module finit_module delete_module iopl ioperm swapon swapoff acct reboot settimeofday
		clock_settime adjtimex clock_adjtime quotactl quotactl_fd syslog vhangup lookup_dcookie nfsservctl uselib ustat sysfs`) {
		all = append(all, call("69 "+name, name, 0, 0, 0, 0, 0))
	}
	for nr := 471; nr <= 520; nr++ {
		all = append(all, try{fmt.Sprintf("78 %d", nr), func() string { return number(nr) }})
	}
	return append(all, try{"78 999", func() string { return number(999) }})
}

func number(nr int) string {
	_, _, errno := unix.Syscall(uintptr(nr), 0, 0, 0)
	if errno == 0 {
		return "ok"
	}
	return unix.ErrnoName(errno)
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func opened(path string, flags int) string {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return answer(err)
}

// upperProtocol asks for a module on a real connection.
func upperProtocol(name string) string {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "socket: " + answer(err)
	}
	defer unix.Close(listener)
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "socket: " + answer(err)
	}
	defer unix.Close(client)
	err = errors.Join(unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(listener, 1))
	if err != nil {
		return "listen: " + answer(err)
	}
	at, err := unix.Getsockname(listener)
	if err == nil {
		err = unix.Connect(client, at)
	}
	if err != nil {
		return "connect: " + answer(err)
	}
	return answer(unix.SetsockoptString(client, unix.SOL_TCP, unix.TCP_ULP, name))
}

// forms makes all tries again from other kinds of process, and answers with those of each kind.
func forms([]string) (any, error) {
	got := map[string]map[string]string{}
	done := make(chan map[string]string)
	go func() {
		runtime.LockOSThread()
		done <- make1(tries())
	}()
	got["a thread"] = <-done
	for form, argv := range map[string][]string{
		"a child of vfork":                {os.Args[0], "syscalls"},
		"a child of a shell":              {"/bin/sh", "-c", os.Args[0] + " syscalls; true"},
		"a program of other name":         {"/bin/bash", "-c", "exec -a other " + os.Args[0] + " syscalls"},
		"a grandchild in its own session": {"/bin/sh", "-c", "setsid " + os.Args[0] + " syscalls"},
	} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", form, err)
		}
		answers := map[string]string{}
		if err := json.Unmarshal(out, &answers); err != nil {
			return nil, fmt.Errorf("%s: %w", form, err)
		}
		got[form] = answers
	}
	status, err := ofSetID()
	if err != nil {
		return nil, err
	}
	got["a set-id program"] = status
	return got, nil
}

// ofSetID starts a program of the base that has a set-user-id bit and waits for input, and looks at it from outside.
func ofSetID() (map[string]string, error) {
	for _, path := range []string{"/usr/bin/su", "/usr/bin/passwd", "/usr/bin/chsh"} {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeSetuid == 0 {
			continue
		}
		c := exec.Command(path)
		in, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return map[string]string{"start": answer(err)}, nil
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		in.Close()
		c.Process.Kill()
		c.Wait()
		if err != nil {
			return nil, err
		}
		fields := map[string]string{"program": path}
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok {
				fields[name] = strings.Join(strings.Fields(value), " ")
			}
		}
		return fields, nil
	}
	return map[string]string{"program": "none"}, nil
}

// foreign makes calls of other architectures, each in a process of its own.
func foreign([]string) (any, error) {
	if runtime.GOARCH != "amd64" {
		return map[string]string{"none": "absent"}, nil
	}
	got := map[string]string{"x32": ended(exec.Command(os.Args[0], "x32"))}
	for name, image := range map[string][]byte{"int80 of a 64-bit program": image64(), "i386 program": image32()} {
		path := filepath.Join(os.TempDir(), strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, image, 0o755); err != nil {
			return nil, err
		}
		got[name] = ended(exec.Command(path))
		os.Remove(path)
	}
	return got, nil
}

func ended(c *exec.Cmd) string {
	err := c.Run()
	if c.ProcessState == nil {
		return answer(err)
	}
	status := c.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return "killed:" + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}

func x32() string { return number(0x40000000 | 39) }

// The images make getpid and then exit(7) as i386 calls; the bytes mean the same in both modes.
var int80 = []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80}

const imageBase = 0x400000

func image64() []byte {
	size := uint64(64 + 56 + len(int80))
	return image(2, uint16(2), uint16(0x3e), uint32(1), uint64(imageBase+64+56), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(imageBase), uint64(imageBase), size, size, uint64(0x1000))
}

func image32() []byte {
	size := uint32(52 + 32 + len(int80))
	return image(1, uint16(2), uint16(3), uint32(1), uint32(imageBase+52+32), uint32(52), uint32(0), uint32(0),
		uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(imageBase), uint32(imageBase), size, size, uint32(5), uint32(0x1000))
}

// image is an ELF header, one loadable segment and the code.
func image(class byte, fields ...any) []byte {
	b := bytes.NewBuffer([]byte{0x7f, 'E', 'L', 'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, f := range fields {
		_ = binary.Write(b, binary.LittleEndian, f) // a bytes.Buffer does not fail
	}
	b.Write(int80)
	return b.Bytes()
}

// memfdExec becomes a copy of itself that has no path, which reports its status.
func memfdExec([]string) (any, error) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("x", 0)
	if err != nil {
		return map[string]string{"memfd_create": answer(err)}, nil
	}
	if _, err := unix.Write(fd, self); err != nil {
		return nil, err
	}
	argv, envv := []*byte{ptr("probe"), ptr("status"), nil}, []*byte{nil}
	nr, _ := seccomp.NativeCall("execveat")
	_, _, errno := unix.RawSyscall6(uintptr(nr.Nr), uintptr(fd), uintptr(unsafe.Pointer(ptr(""))), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return map[string]string{"execveat": unix.ErrnoName(errno)}, nil
}

func ptr(s string) *byte { return unsafe.StringData(s + "\x00") }

// terminal tries to get at the caller's terminal through what this process was given.
func terminal([]string) (any, error) {
	got := map[string]string{"/dev/tty": opened("/dev/tty", unix.O_RDWR)}
	for fd := range 3 {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		got[fmt.Sprintf("isatty %d", fd)] = answer(err)
		got[fmt.Sprintf("TIOCSTI %d", fd)] = sys("ioctl", fd, unix.TIOCSTI, []byte("!"))
		got[fmt.Sprintf("TIOCLINUX %d", fd)] = sys("ioctl", fd, unix.TIOCLINUX, []byte{3})
		got[fmt.Sprintf("TIOCSETD %d", fd)] = sys("ioctl", fd, unix.TIOCSETD, word(13))
		got[fmt.Sprintf("TIOCSCTTY %d", fd)] = sys("ioctl", fd, unix.TIOCSCTTY, 1)
	}
	return got, nil
}

// pagecache tries to change files that are readable only, without opening them for writing.
func pagecache(paths []string) (any, error) {
	got := map[string]string{}
	for _, p := range paths {
		got["open "+p] = opened(p, unix.O_RDWR)
		got["truncate "+p] = answer(unix.Truncate(p, 1))
		for how, f := range map[string]func(*os.File) error{"pipe": dirtyPipe, "cow": dirtyCow} {
			file, err := os.Open(p)
			if err == nil {
				err = f(file)
				file.Close()
			}
			got[how+" "+p] = answer(err)
		}
	}
	return got, nil
}

// dirtyPipe is CVE-2022-0847: bytes written behind a spliced page landed in the page cache.
func dirtyPipe(f *os.File) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	size, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return err
	}
	full := make([]byte, size)
	// Filled and drained once, every slot of the ring has the flag that later writes may be merged into it.
	if _, err := unix.Write(fds[1], full); err != nil {
		return err
	}
	if _, err := unix.Read(fds[0], full); err != nil {
		return err
	}
	offset := int64(0)
	if _, err := unix.Splice(int(f.Fd()), &offset, fds[1], nil, 1, 0); err != nil {
		return err
	}
	_, err = unix.Write(fds[1], []byte("!"))
	return err
}

// dirtyCow writes to a private mapping through /proc, as CVE-2016-5195 did.
func dirtyCow(f *os.File) error {
	data, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(data)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	_, err = mem.WriteAt([]byte("!"), int64(uintptr(unsafe.Pointer(&data[0]))))
	return err
}

// ioctls of file systems, on a new file in each directory.
func ioctls(dirs []string) (any, error) {
	const (
		immutable, appendOnly = 0x10, 0x20
		setXattr              = 0x401c5820
		freeze, trim          = 0xc0045877, 0xc0185879
		blkRoSet, blkDiscard  = 0x125d, 0x1277
	)
	got := map[string]string{}
	for _, dir := range dirs {
		f, err := os.CreateTemp(dir, "ioctl")
		if err != nil {
			return nil, err
		}
		defer f.Close()
		fd := int(f.Fd())
		fsx := make([]byte, 28)
		binary.NativeEndian.PutUint32(fsx[12:], 4711) // project id
		for name, answer := range map[string]string{
			"immutable":   sys("ioctl", fd, unix.FS_IOC_SETFLAGS, word(immutable)),
			"append only": sys("ioctl", fd, unix.FS_IOC_SETFLAGS, word(appendOnly)),
			"project":     sys("ioctl", fd, setXattr, fsx),
			"freeze":      sys("ioctl", fd, freeze, 0),
			"trim":        sys("ioctl", fd, trim, make([]byte, 24)),
			"read-only":   sys("ioctl", fd, blkRoSet, word(1)),
			"discard":     sys("ioctl", fd, blkDiscard, make([]byte, 16)),
		} {
			got[dir+" "+name] = answer
		}
	}
	return got, nil
}

// setID tries every way to make a file with set-id bits in a directory.
func setID(args []string) (any, error) {
	unix.Umask(0)
	dir := args[0]
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	const mode = 0o6755
	plain := func(name string) int {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o755)
		if err != nil {
			return -1
		}
		return fd
	}
	how := make([]byte, 24)
	binary.NativeEndian.PutUint64(how[0:], unix.O_CREAT|unix.O_WRONLY)
	binary.NativeEndian.PutUint64(how[8:], mode)
	acl := []byte{2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 5, 0, 0xff, 0xff, 0xff, 0xff}
	caps := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	got := make1([]try{
		call("open", "open", "a", unix.O_CREAT|unix.O_WRONLY, mode),
		call("openat", "openat", unix.AT_FDCWD, "b", unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL, mode),
		call("openat2", "openat2", unix.AT_FDCWD, "c", how, 24),
		call("creat", "creat", "d", mode),
		call("mknod", "mknod", "e", unix.S_IFREG|mode, 0),
		call("mknodat", "mknodat", unix.AT_FDCWD, "f", unix.S_IFREG|mode, 0),
		{"tmpfile", func() string {
			fd, got := sysFD("openat", unix.AT_FDCWD, ".", unix.O_TMPFILE|unix.O_RDWR, mode)
			if got != "ok" {
				return got
			}
			return answer(unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, "g", unix.AT_SYMLINK_FOLLOW))
		}},
		{"chmod", func() string { plain("h"); return sys("chmod", "h", mode) }},
		{"fchmod", func() string { return sys("fchmod", plain("i"), mode) }},
		{"fchmodat", func() string { plain("j"); return sys("fchmodat", unix.AT_FDCWD, "j", 0o4755) }},
		{"fchmodat2", func() string { plain("k"); return sys("fchmodat2", unix.AT_FDCWD, "k", 0o2755, 0) }},
		{"fchmodat2 of a descriptor", func() string { return sys("fchmodat2", plain("l"), "", mode, unix.AT_EMPTY_PATH) }},
		{"chmod by /proc", func() string { return sys("chmod", fmt.Sprintf("/proc/self/fd/%d", plain("m")), mode) }},
		{"chmod with garbage above", func() string { plain("n"); return sys("chmod", "n", uintptr(0xdead<<32|mode)) }},
		call("mkdir", "mkdir", "o", 0o7777),
		call("mkdirat", "mkdirat", unix.AT_FDCWD, "p", 0o7777),
		{"file capability", func() string { plain("q"); return answer(unix.Setxattr("q", "security.capability", caps, 0)) }},
		{"acl", func() string { plain("r"); return answer(unix.Setxattr("r", "system.posix_acl_access", acl, 0)) }},
		{"link to a set-id program", func() string { return answer(os.Link("/usr/bin/su", "s")) }},
		{"io_uring", func() string { return sys("io_uring_setup", 4, make([]byte, 120)) }},
	})
	for name, script := range map[string]string{
		"install": "install -m 6755 /bin/true t",
		"cp -a":   "cp -a /usr/bin/su u",
		"tar": `/usr/bin/python3 -c "
import tarfile, io
t = tarfile.open('v.tar', 'w'); i = tarfile.TarInfo('v'); i.mode = 0o6755; i.size = 1; t.addfile(i, io.BytesIO(b'x')); t.close()" && tar xpf v.tar`,
		"python": `/usr/bin/python3 -c "import os, shutil; open('w','w'); os.chmod('w', 0o4755)"`,
	} {
		err := exec.Command("/bin/sh", "-c", script).Run()
		got[name] = "ok"
		if err != nil {
			got[name] = "failed"
		}
	}
	return got, nil
}
