//go:build linux && cgo

package seccomp

import (
	"bytes"
	"encoding/binary"
)

// int80 is getpid and then exit(7), made as i386 calls. The bytes mean the same in both modes.
var int80 = []byte{
	0xb8, 20, 0, 0, 0, // mov eax, getpid
	0xcd, 0x80, // int 0x80
	0xb8, 1, 0, 0, 0, // mov eax, exit
	0xbb, 7, 0, 0, 0, // mov ebx, 7
	0xcd, 0x80,
}

const imageBase = 0x400000

// elf64 is the smallest program that starts at code: a header, one loadable segment, the code.
func elf64(code []byte) []byte {
	var b bytes.Buffer
	b.Write(ident(2))
	le(&b, uint16(2), uint16(0x3e), uint32(1), uint64(imageBase+64+56), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))
	size := uint64(64 + 56 + len(code))
	le(&b, uint32(1), uint32(5), uint64(0), uint64(imageBase), uint64(imageBase), size, size, uint64(0x1000))
	b.Write(code)
	return b.Bytes()
}

// elf32 is the same for i386.
func elf32(code []byte) []byte {
	var b bytes.Buffer
	b.Write(ident(1))
	le(&b, uint16(2), uint16(3), uint32(1), uint32(imageBase+52+32), uint32(52), uint32(0), uint32(0),
		uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0))
	size := uint32(52 + 32 + len(code))
	le(&b, uint32(1), uint32(0), uint32(imageBase), uint32(imageBase), size, size, uint32(5), uint32(0x1000))
	b.Write(code)
	return b.Bytes()
}

func ident(class byte) []byte {
	return []byte{0x7f, 'E', 'L', 'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
}

func le(b *bytes.Buffer, fields ...any) {
	for _, f := range fields {
		_ = binary.Write(b, binary.LittleEndian, f) // a bytes.Buffer does not fail
	}
}
