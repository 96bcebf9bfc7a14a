package rootfs

import (
	"fmt"
	"strconv"
	"strings"
)

// etcFiles is the generated /etc of base host: the least that makes libc, shells and language run-times behave.
func etcFiles(hostname string, uid, gid int) map[string]string {
	passwd := "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
	group := "root:x:0:\n"
	if uid != 0 {
		passwd += fmt.Sprintf("skill:x:%d:%d:skill:%s:/bin/sh\n", uid, gid, HomeDir)
		group += fmt.Sprintf("skill:x:%d:\n", gid)
	} else {
		passwd = "root:x:0:0:skill:" + HomeDir + ":/bin/sh\n"
	}
	passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group += "nogroup:x:65534:\n"
	return map[string]string{
		"passwd":        passwd,
		"group":         group,
		"hostname":      hostname + "\n",
		"hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost ip6-localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		"resolv.conf":   "nameserver 127.0.0.1\n",
		"host.conf":     "multi on\n",
		"shells":        "/bin/sh\n/bin/bash\n",
	}
}

// etcShared are the entries of the host's /etc that programs need and that tell nothing about the host: certificates that are
// public, the loader's cache, links of the alternatives system, time zone, run-time configuration. Patterns as in filepath.Match.
// Small files are copied and directories mounted; the list is short because each mount costs time at every start.
var etcShared = []string{
	"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies", "ld.so.cache", "alternatives",
	"localtime", "timezone", "mime.types", "services", "protocols", "java-*", "fonts",
}

// mergeAccounts puts the image's lines of passwd or group behind ours, but for those with a name or an id that ours have.
func mergeAccounts(ours, theirs string, id int) string {
	fields := func(line string) (name, number string) {
		parts := strings.SplitN(line, ":", 4)
		if len(parts) < 3 {
			return "", ""
		}
		return parts[0], parts[2]
	}
	taken := map[string]bool{"": true, "skill": true, ":" + strconv.Itoa(id): true}
	// root and nobody are the image's, if it has them: only their homes and shells differ.
	kept := map[string]string{}
	for line := range strings.Lines(ours) {
		name, _ := fields(line)
		kept[name] = line
		if strings.Contains(line, ":skill:") || name == "skill" {
			taken[name] = true
		}
	}
	var merged strings.Builder
	for line := range strings.Lines(theirs) {
		name, number := fields(line)
		if taken[name] || taken[":"+number] {
			continue
		}
		delete(kept, name)
		merged.WriteString(strings.TrimRight(line, "\r\n") + "\n")
	}
	var first strings.Builder
	for line := range strings.Lines(ours) {
		if name, _ := fields(line); kept[name] != "" {
			first.WriteString(line)
		}
	}
	return first.String() + merged.String()
}
