// Package cgroup limits and counts one box with a control group of version 2, and ends it: memory, processor, processes, disks. It
// is the only importer of containerd/cgroups.
//
// A Place is a directory of the cgroup file system below which groups may be made; Open finds one for the calling process, or says
// what is missing. A Group is made in it empty and without limits, so that setting up a box is neither slowed down nor killed;
// Confine puts the limits in force when the box's init is parked in it, before the skill's first instruction.
//
// See cgroups(7) and the kernel's Documentation/admin-guide/cgroup-v2.rst. Files that are newer than Linux 5.15: memory.peak 5.19,
// pids.peak 6.2, memory.peak that can be reset 6.12.
package cgroup

import "fmt"

// Controllers that a Place may have, as cgroup.controllers spells them.
const (
	CPU    = "cpu"
	IO     = "io"
	Memory = "memory"
	Pids   = "pids"
)

// Limits of one group. Zero means that no limit of this kind is asked for here: something else holds it, or nobody asked.
type Limits struct {
	Memory  int64   // bytes; no swap, and the kernel kills all of the group when it cannot hold
	CPU     float64 // processors; also the share where processors are short: 100 for one
	Pids    int64   // processes and threads, beside those that are in the group when it is confined
	IORead  int64   // bytes per second from each of Disks
	IOWrite int64   // bytes per second to each of Disks
	// IOWeight is the share where a disk is short, 1 to 10000; the kernel's default is 100.
	IOWeight int64
	Disks    []Disk
}

// Disk is a block device's number; of a partition, the whole disk's: the kernel limits no partitions (io.max).
type Disk struct{ Major, Minor uint32 }

// Usage is what a group used since it was confined. A nil field is one that this kernel, or this group's controllers, cannot tell.
type Usage struct {
	UserUS, SystemUS            int64 // microseconds, cpu.stat
	ThrottledUS                 *int64
	MemoryPeak                  *int64 // bytes; before Linux 6.12 at least what setting the box up took
	OOMs                        *int64 // times that the limit could not be held
	OOMKills                    *int64 // processes killed for memory, by this limit or because the machine had none
	PidsPeak                    *int64 // beside those that were there when it was confined
	PidsRefused                 *int64 // forks
	Disk                        *DiskUsage
	PressureCPU, PressureMemory *int64 // microseconds for which some task waited
	PressureIO                  *int64
}

// DiskUsage is io.stat of all disks together.
type DiskUsage struct{ ReadBytes, WriteBytes, Reads, Writes int64 }

// Unavailable says why this process can have no groups, and what would help.
type Unavailable struct{ Message, Hint string }

func (e *Unavailable) Error() string { return "cgroup: " + e.Message }

func unavailable(hint, format string, a ...any) *Unavailable {
	return &Unavailable{Message: fmt.Sprintf(format, a...), Hint: hint}
}
