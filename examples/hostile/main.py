"""Tries what a skill must not be able to do, and reports as JSON what it got.

Every attempt runs in a child of its own with an alarm, so none can take the report with it. An attempt has escaped
when there is evidence: bytes read, a descriptor, a call that returned success. What cannot be evidenced without doing
harm is attempted in its harmless form: a setting is overwritten with the value it has, a signal is one that is ignored
here, an address is one reserved for documentation. No report contains a secret: contents are counted, never quoted.
"""

import ctypes
import errno
import fcntl
import glob
import json
import mmap
import os
import platform
import re
import signal
import socket
import stat
import struct
import sys
import termios

ATTEMPTS = []  # (id, what is tried, function), in the order they are made
PATIENCE = 3  # seconds one attempt may take

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]

# Calls without a wrapper in the C library, x86-64 and the generic table that arm64 and riscv64 share.
NUMBERS = {
    "keyctl": (250, 219),
    "capset": (126, 91),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "fsopen": (430, 430),
    "process_vm_readv": (310, 270),
}

AF_ALG, AF_VSOCK, AF_PACKET = 38, 40, 17
CLONE_NEWUSER, MS_REMOUNT, MS_BIND, MNT_DETACH = 0x10000000, 32, 4096, 2
PTRACE_SEIZE = 0x4206
TEST_NET = "192.0.2.1"  # RFC 5737: reserved for documentation, nobody's

# The kernel gives the machine's first namespaces fixed inode numbers (include/linux/proc_ns.h).
FIRST_PID_NAMESPACE = "pid:[4026531836]"


def attempt(identifier, tried):
    def register(function):
        ATTEMPTS.append((identifier, tried, function))
        return function

    return register


def refused(err):
    """How the kernel said no: EPERM: Operation not permitted (/path)."""
    name = errno.errorcode.get(err.errno, str(err.errno))
    return f"{name}: {err.strerror}" + (f" ({err.filename})" if err.filename else "")


def check(result):
    """The result of a C call, or its errno as an OSError."""
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def raw(name, *args):
    number = NUMBERS[name][0 if platform.machine() == "x86_64" else 1]
    words = [arg if isinstance(arg, (bytes, ctypes.Array)) else ctypes.c_long(arg) for arg in args]
    return check(libc.syscall(ctypes.c_long(number), *words))


def any_of(tries):
    """Makes every try of (name, function): escaped when one succeeds, else one refusal per name."""
    got, refusals = [], []
    for name, function in tries:
        try:
            got.append(f"{name}: {function()}")
        except OSError as err:
            refusals.append(f"{name}: {errno.errorcode.get(err.errno, err.errno)}")
    return ("; ".join(got), True) if got else ("; ".join(refusals) or "nothing to try", False)


def read_some(path):
    with open(path, "rb", buffering=0) as file:
        data = file.read(4096)
    if not data:
        raise OSError(errno.ENODATA, "empty", path)
    return f"{len(data)} bytes"


def read_any(paths):
    return any_of([(path, lambda path=path: read_some(path)) for path in paths])


# Files


@attempt("read-ssh", "read keys and tokens in the home directories")
def read_ssh():
    homes = {os.path.expanduser("~"), "/root", *glob.glob("/home/*")}
    inside = (".ssh/*", ".aws/*", ".kube/config", ".docker/config.json", ".netrc", ".npmrc", ".gitconfig", ".bash_history")
    found = [path for home in sorted(homes) for name in inside for path in glob.glob(f"{home}/{name}")]
    return read_any(found) if found else ("no such file", False)


@attempt("list-homes", "list other people's home directories")
def list_homes():
    own = os.path.realpath(os.path.expanduser("~"))
    others = [home for home in ["/root", *glob.glob("/home/*")] if os.path.realpath(home) != own]

    def entries(home):
        if not (names := os.listdir(home)):
            raise OSError(errno.ENODATA, "empty")
        return f"{len(names)} entries"

    return any_of([(home, lambda home=home: entries(home)) for home in others])


@attempt("read-shadow", "read the host's password hashes and private keys")
def read_shadow():
    return read_any(["/etc/shadow", "/etc/gshadow", "/etc/sudoers", *glob.glob("/etc/ssh/*_key"), *glob.glob("/etc/ssl/private/*")])


@attempt("host-sockets", "connect to the host's service sockets")
def host_sockets():
    paths = [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/journal/stdout",
        "/run/snapd.socket",
    ]

    def connect(path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        return "connected"

    return any_of([(path, lambda path=path: connect(path)) for path in paths])


def write_in(directory):
    path = f"{directory.rstrip('/')}/skillbox-hostile"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    os.unlink(path)
    return "created a file"


@attempt("write-root", "create a file in / and in the directories a skill has no business in")
def write_root():
    return any_of([(path, lambda path=path: write_in(path)) for path in ("/", "/etc", "/var", "/opt", "/run", "/input", "/home")])


@attempt("write-usr", "create a file in /usr")
def write_usr():
    return any_of([(path, lambda path=path: write_in(path)) for path in ("/usr", "/usr/bin", "/usr/lib", "/usr/local")])


@attempt("write-skill", "create a file in the bundle, change the file that is running")
def write_skill():
    got, escaped = any_of([("/skill", lambda: write_in("/skill")), (__file__, lambda: rewrite(__file__))])
    if escaped and mount_type("/skill") in ("overlay", "tmpfs"):
        return f"{got}, in a private copy of the bundle", False
    return got, escaped


def mount_type(point):
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, right = line.split(" - ")
            if left.split()[4] == point:
                return right.split()[0]
    return ""


def rewrite(path):
    """Writes what is there already: proof of the right to write, and nothing changes."""
    fd = os.open(path, os.O_RDWR)
    try:
        value = os.read(fd, 4096)
        os.lseek(fd, 0, os.SEEK_SET)
        return f"{os.write(fd, value)} bytes written"
    finally:
        os.close(fd)


@attempt("open-by-handle", "open the bundle's directory by file handle, past every mount")
def open_by_handle():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 8 + 128)
    mount_id = ctypes.create_string_buffer(8)
    try:
        raw("name_to_handle_at", -100, b"/skill", handle, mount_id, 0)
    except OSError:
        # No handle from the kernel: the one of inode 2, the root directory, on ext4.
        handle = ctypes.create_string_buffer(struct.pack("IiII", 8, 1, 2, 0), 8 + 128)
    root = os.open("/skill", os.O_RDONLY | os.O_DIRECTORY)
    return f"descriptor {raw('open_by_handle_at', root, handle, os.O_RDONLY)}", True


@attempt("devices", "open devices that are not everybody's: memory, disks, kernel log, KVM, FUSE")
def devices():
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    candidates = ["/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/userfaultfd"]
    for name in os.listdir("/dev"):
        mode = os.lstat(f"/dev/{name}").st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and name not in harmless:
            candidates.append(f"/dev/{name}")

    def opened(path):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
        return "opened"

    return any_of([(path, lambda path=path: opened(path)) for path in dict.fromkeys(candidates)])


@attempt("mknod", "make a device node for the kernel's memory and open it")
def mknod():
    def make(directory):
        path = f"{directory}/skillbox-mem"
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 1))
        try:
            os.close(os.open(path, os.O_RDONLY))
        finally:
            os.unlink(path)
        return "made and opened"

    return any_of([(path, lambda path=path: make(path)) for path in ("/tmp", os.path.expanduser("~"), "/dev", "/output")])


# Kernel files


@attempt("core-pattern", "name a program for the host to run when something crashes")
def core_pattern():
    names = ("kernel/core_pattern", "kernel/modprobe", "kernel/hotplug")
    return any_of([(name, lambda name=name: rewrite(f"/proc/sys/{name}")) for name in names])


@attempt("sysctl", "write to /proc/sys and /proc/sysrq-trigger")
def sysctl():
    names = ("kernel/hostname", "kernel/randomize_va_space", "vm/overcommit_memory", "fs/file-max", "net/ipv4/ip_forward", "user/max_user_namespaces")

    def sysrq():
        os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))  # opened and left alone
        return "opened for writing"

    tries = [(name, lambda name=name: rewrite(f"/proc/sys/{name}")) for name in names]
    return any_of([*tries, ("sysrq-trigger", sysrq)])


@attempt("proc-secrets", "read the kernel's memory, keys and timers in /proc")
def proc_secrets():
    return read_any([f"/proc/{name}" for name in ("kcore", "keys", "timer_list", "sched_debug", "latency_stats", "scsi/scsi")])


@attempt("list-sys", "learn the host's hardware, interfaces and modules from /sys")
def list_sys():
    places = ("class/net", "class/dmi", "class/block", "class/powercap", "bus/pci/devices", "firmware", "fs/cgroup", "kernel", "module")

    def entries(place):
        names = [name for name in os.listdir(f"/sys/{place}") if name != "lo"]
        if not names:
            raise OSError(errno.ENODATA, "empty")
        return f"{len(names)} entries"

    return any_of([(place, lambda place=place: entries(place)) for place in places])


@attempt("cgroup-write", "make a cgroup, or move into another one")
def cgroup_write():
    def make(directory):
        path = f"{directory}/skillbox-hostile"
        os.mkdir(path)
        os.rmdir(path)
        return "made one"

    def move(directory):
        with open(f"{directory}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        return "moved"

    places = ["/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*/")]
    return any_of([(f"{name} {place}", lambda f=f, place=place: f(place)) for place in places for name, f in (("mkdir", make), ("join", move))])


# Processes and the environment


def parents(pid):
    """pid and the processes above it."""
    line = []
    while pid:
        line.append(pid)
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return line


def strangers(pids, reporter):
    """Those of pids that are neither init, nor above the reporter, nor below it."""
    known = {1, *parents(reporter)}
    return [pid for pid in pids if pid not in known and reporter not in parents(pid)]


@attempt("list-processes", "find processes of the host in /proc, or by their number")
def list_processes():
    reporter = os.getppid()
    found = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    for pid in range(2, 1 << 16):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            pass
        if not is_thread(pid):
            found.add(pid)
    others = strangers(found, reporter)
    return (f"{len(others)} processes", True) if others else (f"only its own: {sorted(found)}", False)


def is_thread(pid):
    """Whether pid is one thread among a process's others: kill finds those too, a listing does not."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return f"\nTgid:\t{pid}\n" not in file.read()
    except OSError:
        return False


@attempt("pid1-environ", "read the environment and the memory map of pid 1")
def pid1_environ():
    def foreign(path):
        with open(path, "rb") as file:
            names = {entry.partition(b"=")[0].decode() for entry in file.read().split(b"\0") if b"=" in entry}
        if not names - set(os.environ):
            raise OSError(errno.ENODATA, "nothing new")
        return f"{len(names - set(os.environ))} variables that are not its own"

    return any_of([("environ", lambda: foreign("/proc/1/environ")), ("maps", lambda: read_some("/proc/1/maps"))])


@attempt("pid1-links", "reach the host through pid 1's root, working directory, program and descriptors")
def pid1_links():
    def fds():
        links = [os.readlink(path) for path in glob.glob("/proc/1/fd/*")]
        if not links:
            raise OSError(errno.EACCES, "none readable")
        return f"{len(links)} descriptors"

    names = ("root", "cwd", "exe")
    return any_of([*((name, lambda name=name: os.readlink(f"/proc/1/{name}")) for name in names), ("fd", fds)])


@attempt("env-keys", "find keys and tokens in its own environment")
def env_keys():
    secret = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|^AWS_|^SSH_|^DBUS_|^XDG_|^SUDO_|_PROXY$", re.IGNORECASE)
    names = sorted(name for name in os.environ if secret.search(name))
    return (", ".join(names), True) if names else (f"{len(os.environ)} variables: {', '.join(sorted(os.environ))}", False)


@attempt("find-canary", "search every process, mount and scratch file for a value hidden outside")
def find_canary():
    canary = PARAMS.get("canary")
    if not canary:
        return 'not tried: give "canary" in the parameters', False
    paths = ["/proc/self/mountinfo", "/proc/cmdline", *glob.glob("/run/**", recursive=True), *glob.glob("/tmp/**", recursive=True)]
    for name in ("environ", "cmdline", "maps", "mountinfo", "cgroup"):
        paths += glob.glob(f"/proc/[0-9]*/{name}")
    own = os.path.realpath(os.environ.get("SKILLBOX_PARAMS_FILE", ""))  # we were told it, in there

    def search(path):
        if os.path.realpath(path) == own or not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return canary.encode() in file.read(1 << 20)

    found = []
    for path in dict.fromkeys(paths):
        try:
            if search(path):
                found.append(path)
        except OSError:
            pass
    return (", ".join(found), True) if found else (f"not in {len(paths)} files", False)


@attempt("ptrace-init", "trace pid 1 and read its memory")
def ptrace_init():
    def vm_read():
        local, remote = ctypes.create_string_buffer(8), 0x400000
        mine = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(local), 8), 16)
        theirs = ctypes.create_string_buffer(struct.pack("QQ", remote, 8), 16)
        return f"{raw('process_vm_readv', 1, mine, 1, theirs, 1, 0)} bytes"

    def seize():
        check(libc.ptrace(PTRACE_SEIZE, 1, None, None))
        return "attached"

    def memory():
        os.close(os.open("/proc/1/mem", os.O_RDONLY))
        return "opened"

    return any_of([("ptrace", seize), ("process_vm_readv", vm_read), ("/proc/1/mem", memory)])


@attempt("inherited-fds", "use descriptors that somebody forgot to close")
def inherited_fds():
    return (", ".join(INHERITED), True) if INHERITED else ("only 0, 1 and 2", False)


# Rights and namespaces


@attempt("rights-left", "keep a capability, run without no_new_privs or without a filter")
def rights_left():
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    sets = {name: status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    facts = {**sets, "NoNewPrivs": status["NoNewPrivs"].strip(), "Seccomp": status["Seccomp"].strip()}
    confined = not any(int(value, 16) for value in sets.values()) and facts["NoNewPrivs"] == "1" and facts["Seccomp"] == "2"
    return " ".join(f"{name}={value}" for name, value in facts.items()), not confined


@attempt("setuid-root", "become uid 0, and use it")
def setuid_root():
    before = os.geteuid()
    os.setuid(0)
    if before == 0:
        # Where the box has a single id it is uid 0 of its own namespace from the start, without a right.
        return "uid 0 before and after, in its own user namespace", False
    return f"uid {before} became 0", True


@attempt("capset", "raise every capability")
def capset():
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
    wanted = ctypes.create_string_buffer(struct.pack("IIIIII", *[0xFFFFFFFF, 0xFFFFFFFF, 0, 0x1FF, 0x1FF, 0]), 24)
    tries = [("all", wanted)]
    for number, name in ((21, "CAP_SYS_ADMIN"), (12, "CAP_NET_ADMIN"), (1, "CAP_DAC_OVERRIDE")):
        tries.append((name, ctypes.create_string_buffer(struct.pack("IIIIII", 1 << number, 1 << number, 0, 0, 0, 0), 24)))
    return any_of([(name, lambda sets=sets: f"returned {raw('capset', header, sets)}") for name, sets in tries])


@attempt("unshare-user", "make a user namespace, and with it every capability over new ones")
def unshare_user():
    return f"returned {check(libc.unshare(CLONE_NEWUSER))}", True


@attempt("setns", "enter another process's namespaces")
def setns():
    def enter(path):
        fd = os.open(path, os.O_RDONLY)
        check(libc.setns(fd, 0))
        return "entered"

    paths = [f"/proc/{pid}/ns/{name}" for pid in ("1", "self") for name in ("mnt", "net", "pid", "ipc", "uts", "cgroup")]
    return any_of([(path, lambda path=path: enter(path)) for path in paths])


@attempt("mount", "mount a filesystem, remount / writable, bind, unmount; the old calls and the new")
def mount():
    def mounted(source, target, kind, flags):
        check(libc.mount(source, target, kind, ctypes.c_ulong(flags), None))
        libc.umount2(target, MNT_DETACH)
        return "mounted"

    def remount():
        check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REMOUNT | MS_BIND), None))
        return "remounted"

    def unmount():
        check(libc.umount2(b"/proc", MNT_DETACH))
        return "unmounted"

    return any_of(
        [
            ("tmpfs", lambda: mounted(b"tmpfs", b"/tmp", b"tmpfs", 0)),
            ("proc", lambda: mounted(b"proc", b"/tmp", b"proc", 0)),
            ("bind", lambda: mounted(b"/", b"/tmp", None, MS_BIND)),
            ("remount", remount),
            ("fsopen", lambda: f"descriptor {raw('fsopen', b'tmpfs', 0)}"),
            ("umount /proc", unmount),
        ]
    )


@attempt("chroot", "climb out of / with chroot and pivot_root")
def chroot():
    os.chroot("/tmp")
    return "changed its root", True


# System calls


@attempt("io-uring", "set up io_uring, whose operations no filter sees")
def io_uring():
    return f"descriptor {raw('io_uring_setup', 4, ctypes.create_string_buffer(120))}", True


@attempt("bpf", "create a BPF map")
def bpf():
    array = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 8, 1), 128)
    return f"descriptor {raw('bpf', 0, array, 128)}", True


@attempt("keyctl", "look into the session keyring, which no namespace separates")
def keyctl():
    return any_of([("get", lambda: f"key {raw('keyctl', 0, -3, 0)}"), ("join", lambda: f"key {raw('keyctl', 1, 0)}")])


@attempt("tiocsti", "type into the caller's terminal")
def tiocsti():
    def push(fd):
        fcntl.ioctl(fd, termios.TIOCSTI, b" ")  # a blank, should it arrive
        return "accepted"

    tries = [(f"descriptor {fd}", lambda fd=fd: push(fd)) for fd in (0, 1, 2)]
    return any_of([*tries, ("/dev/tty", lambda: push(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)))])


@attempt("int80", "make a 32-bit system call, past a filter that knows only the native ones")
def int80():
    if platform.machine() != "x86_64":
        return "not tried: there is no such instruction here", False
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    return f"getpid returned {result}", result > 0


# Network


def sock(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return "opened"


@attempt("af-alg", "open the kernel's crypto interface")
def af_alg():
    return sock(AF_ALG, socket.SOCK_SEQPACKET), True


@attempt("af-vsock", "open a socket to the hypervisor, which no network namespace separates")
def af_vsock():
    return sock(AF_VSOCK, socket.SOCK_STREAM), True


@attempt("raw-sockets", "open raw, packet and netfilter sockets")
def raw_sockets():
    netlink_netfilter = 12
    return any_of(
        [
            ("packet", lambda: sock(AF_PACKET, socket.SOCK_RAW, socket.htons(3))),
            ("icmp", lambda: sock(socket.AF_INET, socket.SOCK_RAW, 1)),
            ("icmp6", lambda: sock(socket.AF_INET6, socket.SOCK_RAW, 58)),
            ("netfilter", lambda: sock(socket.AF_NETLINK, socket.SOCK_RAW, netlink_netfilter)),
        ]
    )


@attempt("interfaces", "find a network interface other than loopback")
def interfaces():
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return (", ".join(names), True) if names else ("only lo", False)


@attempt("connect-out", f"send to {TEST_NET}, an address reserved for documentation")
def connect_out():
    """No answer counts as an escape too: a box refuses at once, so silence means that a packet left."""

    def tcp():
        with socket.socket() as client:
            client.settimeout(0.7)
            client.connect((TEST_NET, 443))
        return "connected"

    def udp():
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.settimeout(0.7)
            client.connect((TEST_NET, 53))
            client.send(b"\0")
            client.recv(1)
        return "answered"

    def or_silence(function):
        try:
            return function()
        except socket.timeout:
            return "sent, no answer"

    return any_of([("tcp", lambda: or_silence(tcp)), ("udp", lambda: or_silence(udp))])


@attempt("connect-loopback", "reach services on the host's loopback")
def connect_loopback():
    ports = [22, 53, 111, 631, 2375, 3306, 5432, 6379, 8080, *([PARAMS["port"]] if PARAMS.get("port") else [])]

    def connect(address):
        socket.create_connection(address, timeout=0.2).close()
        return "connected"

    addresses = [(host, port) for host in ("127.0.0.1", "::1") for port in ports]
    return any_of([(f"{host} {port}", lambda host=host, port=port: connect((host, port))) for host, port in addresses])


@attempt("abstract-sockets", "connect to the host's abstract unix sockets")
def abstract_sockets():
    with open("/proc/net/unix") as file:
        names = {line.split()[-1][1:] for line in file if line.split()[-1].startswith("@")}
    names |= {"/tmp/.X11-unix/X0", "/tmp/dbus-test"} | ({PARAMS["abstract"]} if PARAMS.get("abstract") else set())

    def connect(name):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0" + name)
        return "connected"

    return any_of([("@" + name, lambda name=name: connect(name)) for name in sorted(names)])


# Last, because outside a box it would be everybody's signal.
@attempt("signal-all", "signal every process there is")
def signal_all():
    """SIGUSR1 ends whoever has no handler. The reporter and its children ignore it, so a report that is still
    written shows nothing; what shows is whether there was anybody else to receive it."""
    others = strangers([int(name) for name in os.listdir("/proc") if name.isdigit()], os.getppid())
    os.kill(-1, signal.SIGUSR1)
    return (f"{len(others)} processes got it", True) if others else ("reached only its own", False)


# The report


def in_a_box():
    """Whether this is a box, and not somebody's machine: the bundle is at /skill, pid 1 is not the machine's, and
    skillbox gave us parameters or is that pid 1."""
    try:
        if not os.path.isdir("/skill") or os.readlink("/proc/self/ns/pid") == FIRST_PID_NAMESPACE:
            return False
        if os.environ.get("SKILLBOX_PARAMS_FILE"):
            return True
        with open("/proc/1/comm") as file:
            return file.read().startswith("skillbox")
    except OSError:
        return False


def parameters():
    path = os.environ.get("SKILLBOX_PARAMS_FILE")
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.loads(file.read() or "{}")


def left_open():
    """What descriptors above 2 point to, asked before this program opens one."""
    links = []
    for fd in range(3, 1024):
        try:
            fcntl.fcntl(fd, fcntl.F_GETFD)
        except OSError:
            continue
        try:
            links.append(f"{fd}: {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            links.append(str(fd))
    return links


def outcome(function):
    """Runs one attempt in a child and returns (what it got, whether it escaped)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            answer = function()
        except OSError as err:
            answer = refused(err), False
        except BaseException as err:
            answer = f"the attempt itself is broken: {type(err).__name__}: {err}", False
        os.write(writer, json.dumps([answer[0][:500], answer[1]]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if answer:
        return json.loads(answer)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGALRM:
            return f"no answer in {PATIENCE} seconds", False
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}", False
    return f"exited with {os.WEXITSTATUS(status)} and said nothing", False


def main():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    chosen = PARAMS.get("only")
    attempts = []
    for identifier, tried, function in ATTEMPTS:
        if chosen is None or identifier in chosen:
            got, escaped = outcome(function)
            attempts.append({"id": identifier, "tried": tried, "got": got, "escaped": escaped})
    print(json.dumps({"attempts": attempts, "escaped": sum(entry["escaped"] for entry in attempts)}))


if __name__ == "__main__":
    INHERITED = left_open()
    if not in_a_box():
        print(json.dumps({"error": "this is not a box, so nothing was tried: run it with skillbox exec --params '{}'"}))
        sys.exit(1)
    PARAMS = parameters()
    main()
