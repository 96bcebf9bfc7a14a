package ziptest

import (
	"bytes"
	"fmt"
	"strings"
)

// Bad is an archive that must be refused.
type Bad struct {
	Name  string // what is wrong with it
	Data  []byte
	Entry string // that the refusal names, as it is escaped; "" is that the whole archive is meant
	Why   string // part of the reason
}

// skill is a skill that nothing is wrong with.
var skill = Entry{Name: "SKILL.md", Data: []byte("---\nname: fine\ndescription: Is fine.\n---\n")}

// file is one more entry.
func file(name string) Entry { return Entry{Name: name, Data: []byte("echo\n")} }

// All are archives of every kind that must be refused.
func All() []Bad {
	var all []Bad
	for _, of := range [][]Bad{names(), kinds(), sizes(), twice(), layouts(), smuggled(), whole()} {
		all = append(all, of...)
	}
	return all
}

func one(name string, e Entry, entry, why string) Bad {
	return Bad{name, Make(skill, e), entry, why}
}

func names() []Bad {
	many := strings.Repeat("d/", 70) + "f"
	return []Bad{
		one("a path that leads up", file("../../etc/cron.d/x"), "../../etc/cron.d/x", "leads out"),
		one("a path that leads up in its middle", file("a/../../x"), "a/../../x", "leads out"),
		one("a path that leads up and back", file("a/../b"), "a/../b", "leads out"),
		one("an absolute path", file("/etc/passwd"), "/etc/passwd", "absolute"),
		one("a path of Windows", file(`..\..\x`), `..\\..\\x`, "backslash"),
		one("a drive", file("C:/x"), "C:/x", "drive letter"),
		one("a drive without a path", file("c:x"), "c:x", "drive letter"),
		one("a NUL", file("a\x00.py"), `a\x00.py`, "control character"),
		one("a line break", file("a\nb"), `a\nb`, "control character"),
		one("a name that turns around", file("a\u202egnp.py"), `a\u202egnp.py`, "reorders"),
		one("a name that is no UTF-8", file("caf\xe9"), `caf\xe9`, "not valid UTF-8"),
		one("an option", file("-rf"), "-rf", "dash"),
		one("an empty name in a path", file("a//b"), "a//b", "not a file name"),
		one("a dot in a path", file("./a"), "./a", "not a file name"),
		one("no name", Entry{Name: "/"}, "/", "is no name"),
		one("a long name", file(strings.Repeat("n", 256)), strings.Repeat("n", 256), "longer than 255"),
		one("a long path", file(strings.Repeat("path/", 900)+"f"), "", "longer than 4096"),
		one("a deep path", file(many), many, "deeper"),
	}
}

func kinds() []Bad {
	typed := func(mode uint32) Entry { return Entry{Name: "x", Data: []byte("/etc/passwd"), Mode: mode} }
	return []Bad{
		one("a symbolic link", typed(0o120777), "x", "a symbolic link"),
		one("a block device", typed(0o060666), "x", "a block device"),
		one("a character device", typed(0o020666), "x", "a character device"),
		one("a FIFO", typed(0o010644), "x", "a FIFO"),
		one("a socket", typed(0o140755), "x", "a socket"),
		one("a type that there is not", typed(0o150000), "x", "unknown type"),
		one("a set-user-id file", typed(0o104755), "x", "set-user-id"),
		one("a directory with content", Entry{Name: "d/", Data: []byte("x")}, "d/", "with content"),
		one("a file with a directory's mode", typed(0o040755), "x", "not by both"),
		one("a directory with a file's mode", Entry{Name: "d/", Mode: 0o100644}, "d/", "not by both"),
		one("an encrypted entry", Entry{Name: "x", Data: []byte("s"), Flags: 1}, "x", "encrypted"),
		one("a strongly encrypted entry", Entry{Name: "x", Data: []byte("s"), Flags: 1 | 1<<6}, "x", "encrypted"),
		one("a patch", Entry{Name: "x", Data: []byte("s"), Flags: 1 << 5}, "x", "patch"),
		one("a method that few know", Entry{Name: "x", Data: []byte("s"), Method: 14, Packed: []byte("s")}, "x", "method 14"),
	}
}

func sizes() []Bad {
	zeros := make([]byte, 8<<20)
	var big []Entry
	for i := range 40 { // each of them might be
		big = append(big, Entry{Name: fmt.Sprintf("big-%d", i), Data: []byte("x"), Packed: bytes.Repeat([]byte{0}, 64<<10), Method: 8, Declare: 10 << 20, Flags: 0})
	}
	many := make([]Entry, 20_001)
	for i := range many {
		many[i] = Entry{Name: fmt.Sprint("f", i), Method: 0, Packed: []byte{}}
	}
	files := make([]Entry, 10_001)
	for i := range files {
		files[i] = Entry{Name: fmt.Sprint("f", i), Method: 0, Packed: []byte{}}
	}
	var dirs []Entry
	for i := range 500 {
		dirs = append(dirs, Entry{Name: strings.Repeat(fmt.Sprintf("d%d/", i), 60), Method: 0, Packed: []byte{}})
	}
	return []Bad{
		one("a bomb", Entry{Name: "zeros", Data: zeros}, "zeros", "more than 200 times"),
		{"many large files", Make(big...), "big-25", "larger than 268435456 bytes together"},
		{"too many entries", Make(many...), "", "20001 entries"},
		{"too many files", Make(files...), "f10000", "more than 10000 files"},
		{"directories that nobody lists", Make(dirs...), "", "with directories more than 20000"},
		one("a file that is larger than it says", Entry{Name: "x", Data: bytes.Repeat([]byte("ab"), 5000), Declare: 100}, "x", "another size"),
		one("a file that is smaller than it says", Entry{Name: "x", Data: []byte("abc"), Declare: 100}, "x", "another size"),
		one("a stored file of two sizes", Entry{Name: "x", Data: []byte("abc"), Method: 0, LocalMethod: 0, Packed: []byte("abc"), Declare: 100}, "x", "two sizes"),
		one("a wrong checksum", Entry{Name: "x", Data: []byte("abc"), Sum: 7}, "x", "checksum"),
		one("data that cannot be inflated", Entry{Name: "x", Data: []byte("abc"), Method: 8, Packed: []byte("\xff\xff\xff")}, "x", "damaged"),
	}
}

func twice() []Bad {
	return []Bad{
		{"a name twice", Make(skill, file("x"), file("x")), "x", "twice"},
		{"the manifest twice", Make(skill, skill), "SKILL.md", "twice"},
		{"names that differ in case", Make(skill, file("skill.MD")), "skill.MD", "case or Unicode form"},
		{"directories that differ in case", Make(skill, file("lib/a"), file("LIB/b")), "LIB/b", "case or Unicode form"},
		{"names that differ in Unicode form", Make(skill, file("caf\u00e9"), file("cafe\u0301")), "cafe\u0301", "case or Unicode form"},
		{"a file that is a directory", Make(skill, file("x"), file("x/y")), "x/y", "a file and a directory"},
		{"a directory that is a file", Make(skill, file("x/y"), file("x")), "x", "a file and a directory"},
	}
}

func layouts() []Bad {
	hidden := file("hidden.py")
	hidden.Hide = true
	again := file("again")
	again.Only = true
	again.LocalName = "x"
	described := func(d string) Entry {
		return Entry{Name: "x", Data: []byte("abc"), Flags: 8, Descriptor: []byte(d)}
	}
	other := file("x")
	other.LocalSum = 7
	return []Bad{
		{"two entries with one content", Make(skill, file("x"), again), "again", "overlaps"},
		{"an entry that the directory hides", Make(skill, hidden, file("x")), "x", "no entry lies before it"},
		{"a last entry that the directory hides", Make(skill, hidden), "", "between its last entry and its directory"},
		{"something before an entry", Make(skill, Entry{Name: "x", Data: []byte("a"), Before: []byte("junk")}), "x", "no entry lies before it"},
		{"a program before the archive", append([]byte("#!/bin/sh\nexit\n"), Make(skill)...), "", "before its first entry"},
		one("another name before the data", Entry{Name: "x", LocalName: "y", Data: []byte("a")}, "x", `called "y"`),
		one("a long name that is another before the data", Entry{Name: strings.Repeat("path/", 900) + "f", LocalName: strings.Repeat("path/", 900) + "g"}, "", "before its data"),
		one("another checksum before the data", other, "x", "in two ways"),
		one("another method before the data", Entry{Name: "x", Data: []byte("a"), LocalMethod: 12}, "x", "in two ways"),
		one("another name in Unicode", Entry{Name: "x", Data: []byte("a"), Extra: Renamed("x", "../x")}, "x", "another name in Unicode"),
		one("another size behind the data", described("PK\x07\x08\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00"), "x", "in two ways"),
		one("a header that reaches beyond the end", Entry{Name: "x", Packed: []byte{}, LocalExtra: 0xffff}, "x", "overlaps"),
		one("nothing behind the data", described(""), "x", "in two ways"),
	}
}

// smuggled are archives in which an entry's packed data holds another entry: a program that reads from the beginning finds it where the first
// one's deflate stream ends.
func smuggled() []Bad {
	within := func(e Entry) Entry {
		var packed bytes.Buffer
		put(&packed, Deflate(e.Data), descriptor(e))
		evil := Entry{Name: "scripts/evil.py", Data: []byte("import os\n"), Flags: 8, Later: true}
		evil.Descriptor = descriptor(evil)
		evil.fill()
		evil.local(&packed)
		e.Method, e.Flags, e.Later, e.Packed = 8, 8, true, packed.Bytes()
		e.Descriptor = descriptor(e)
		return e
	}
	plain := Entry{Name: "x", Data: []byte("a"), Method: 8, Packed: append(Deflate([]byte("a")), "junk"...)}
	stored := Entry{Name: "x", Data: []byte("a"), Flags: 8, Packed: []byte("a")}
	stored.Descriptor = descriptor(stored)
	empty := Entry{Name: "x", Flags: 8, Packed: []byte{}, Descriptor: make([]byte, 12)}
	return []Bad{
		one("an entry within another's data", within(file("x")), "x", "read as further entries"),
		one("an entry within a directory's data", within(Entry{Name: "d/"}), "d/", "read as further entries"),
		one("something behind the packed data", plain, "x", "read as further entries"),
		one("a directory whose data is no packed data", Entry{Name: "d/", Method: 8, Packed: []byte("\xff\xff")}, "d/", "damaged"),
		one("an empty stored file without the mark of its end", empty, "x", "in two ways"),
		one("a stored file that has its size behind it", stored, "x", "has to guess where it ends"),
	}
}

func whole() []Bad {
	good := Make(skill, file("x"))
	count := Archive{Entries: []Entry{skill, file("x")}, Count: 9}
	locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
	long := make([]Entry, 100)
	for i := range long {
		long[i] = Entry{Name: fmt.Sprint("f", i), Extra: Extra(0xcafe, make([]byte, 60_000))}
	}
	return []Bad{
		{"nothing", nil, "", "not a zip"},
		{"a text", []byte("---\nname: x\n---\n"), "", "not a zip"},
		{"a gzip", []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "", "not a zip"},
		{"an archive without its end", good[:len(good)-10], "", "not a zip"},
		{"an archive without its beginning", good[20:], "", "before its first entry"},
		{"half an archive", good[:len(good)/2], "", "not a zip"},
		{"no entries", Make(), "", "is empty"},
		{"something after the end", Archive{Entries: []Entry{skill}, After: []byte("more")}.Bytes(), "", "after its end"},
		{"two archives in one", append(bytes.Clone(good), Make(file("y"))...), "", "before its first entry"},
		{"an end in a comment", Archive{Entries: []Entry{skill}, Comment: string(Make())}.Bytes(), "", "before its first entry"},
		{"a count that is wrong", count.Bytes(), "", "damaged"},
		{"one of several parts", Archive{Entries: []Entry{skill}, Disk: 1}.Bytes(), "", "several parts"},
		{"a zip64 archive", Archive{Entries: []Entry{skill}, Within: locator}.Bytes(), "", "zip64"},
		{"a huge directory", Make(long...), "", "directory of"},
		{"something between the entries and the directory", Archive{Entries: []Entry{skill}, Between: []byte("junk")}.Bytes(), "", "between its last entry"},
		{"an entry that is no entry", bytes.Replace(good, []byte("PK\x03\x04"), []byte("PK\x03\x05"), 1), "SKILL.md", "damaged"},
	}
}
