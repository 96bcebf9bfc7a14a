package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// widening are options of `docker run`, and the keys by which other formats write them, that take something of the sandbox away.
var widening = map[string]string{
	"privileged":         "it gives the skill every right of root's, and the host's devices",
	"cap-add":            "a skill has no capability",
	"security-opt":       "it takes filters and labels away that hold the skill",
	"device":             "it shows a device of the host's; GPUs are asked for by gpus",
	"devices":            "it shows devices of the host's; GPUs are asked for by gpus",
	"device-cgroup-rule": "it shows devices of the host's",
	"network":            "the host's network, or another container's, is everything that listens there; none and bridge are available",
	"net":                "the host's network, or another container's, is everything that listens there; none and bridge are available",
	"network-mode":       "the host's network, or another container's, is everything that listens there; none and bridge are available",
	"pid":                "the processes of the host, or of another container, would be the skill's to see and end",
	"pid-mode":           "the processes of the host, or of another container, would be the skill's to see and end",
	"ipc":                "memory and queues of the host's programs would be the skill's to write",
	"uts":                "the name of the host would be the skill's to change",
	"userns":             "a skill has a user namespace of its own",
	"cgroupns":           "the control groups of the host would be the skill's to see",
	"cgroup-parent":      "it takes the run out of the limits that hold it",
	"volume":             "volumes are checked; write it among volumes",
	"mount":              "volumes are checked; write it among volumes",
	"volumes-from":       "it shows what another container has",
	"group-add":          "a skill has no group of the host's",
	"sysctl":             "the kernel's settings are not the skill's to change",
	"ulimit":             "limits are said by the policy's resources",
	"oom-kill-disable":   "it takes a limit's end away",
	"oom-score-adj":      "it has the kernel end other programs first",
	"runtime":            "it has another program make the sandbox",
	"gpus":               "write it as gpus, which the policy must grant",
	"publish":            "ports of the host are not the skill's to listen on; a policy's network.ingress publishes one",
	"publish-all":        "ports of the host are not the skill's to listen on; a policy's network.ingress publishes one",
	"ports":              "ports of the host are not the skill's to listen on; a policy's network.ingress publishes one",
	"add-host":           "it has a name lead elsewhere than the policy allowed it for",
	"dns":                "names are looked up by skillbox alone, which decides on them",
	"env-file":           "variables are named one by one; write them among environment",
	"cidfile":            "it writes a file of the host's",
	"entrypoint":         "write it as entrypoint",
	"memory-swap":        "it lets the skill use more than memory",
	"shm-size":           "it is memory beside memory; /dev/shm has the size of filesystem.tmp",
	"tmpfs":              "scratch space is said by the policy's filesystem",
	"tty":                "a terminal is the caller's to give: skillbox exec --tty",
	"detach":             "a call ends with its skill",
	"restart":            "a call ends with its skill",
}

// shorts are the one-letter options; false are those without a value.
var shorts = map[byte]struct {
	name  string
	value bool
}{
	'a': {"attach", true}, 'c': {"cpu-shares", true}, 'd': {"detach", false}, 'e': {"env", true}, 'h': {"hostname", true}, 'i': {"interactive", false},
	'l': {"label", true}, 'm': {"memory", true}, 'p': {"publish", true}, 'P': {"publish-all", false}, 'q': {"quiet", false}, 't': {"tty", false},
	'u': {"user", true}, 'v': {"volume", true}, 'w': {"workdir", true},
}

// switches are harmless options without a value, or with true or false.
var switches = map[string]bool{
	"rm": true, "init": true, "read-only": true, "interactive": true, "quiet": true, "no-healthcheck": true, "sig-proxy": true, "privileged": true, "oom-kill-disable": true,
}

// valued are the other options that are looked at further: each has a value, in the same word or the next.
var valued = map[string]bool{
	"cap-drop": true, "name": true, "label": true, "stop-timeout": true, "hostname": true, "security-opt": true, "network": true, "net": true,
	"pull": true, "log-driver": true, "pids-limit": true, "memory": true, "cpus": true, "env": true,
}

func flagName(key string) string { return strings.ReplaceAll(strings.ToLower(key), "_", "-") }

// extra reads extra_args as `docker run` would. Few options are harmless or have a meaning here; everything else is refused by its name.
func (r *resolving) extra(c *docker) error {
	for i := 0; i < len(c.extra); i++ {
		t := c.extra[i]
		options, err := r.options(t)
		if err != nil {
			return err
		}
		for _, o := range options {
			if o.takes && !o.given {
				if i++; i == len(c.extra) {
					return t.fail("--"+o.name+" needs a value", "")
				}
				o.value = c.extra[i].text
			}
			if err := r.option(t, o); err != nil {
				return err
			}
		}
	}
	return nil
}

type option struct {
	name, value  string
	takes, given bool // a value is needed, or there with the word
}

// options are those of one word: one long one, or several short ones.
func (r *resolving) options(t text) ([]option, error) {
	word := t.text
	long, isLong := strings.CutPrefix(word, "--")
	if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
		return nil, t.fail(fmt.Sprintf("%q is no option: docker would take it for the image", word), "what is run is said by entrypoint and command")
	}
	if isLong {
		name, value, given := strings.Cut(long, "=")
		return []option{{name, value, valued[name], given}}, nil
	}
	var all []option
	for i := 1; i < len(word); i++ {
		short, ok := shorts[word[i]]
		if !ok {
			return nil, t.fail(fmt.Sprintf("%q is refused: -%c is not known", word, word[i]), "")
		}
		if short.value {
			value := strings.TrimPrefix(word[i+1:], "=")
			return append(all, option{short.name, value, true, i+1 < len(word)}), nil
		}
		all = append(all, option{name: short.name})
	}
	return all, nil
}

func (r *resolving) option(t text, o option) error {
	refuse := func(why string) error { return t.fail("--"+o.name+" is refused: "+why, "take it out of extra_args") }
	value := t
	value.text = o.value
	on := true
	if switches[o.name] && o.given {
		var err error
		if on, err = strconv.ParseBool(o.value); err != nil {
			return t.fail(fmt.Sprintf("--%s: %q is neither true nor false", o.name, o.value), "")
		}
	}
	switch o.name {
	case "rm", "init", "interactive", "quiet", "no-healthcheck", "sig-proxy":
	case "read-only":
		if !on {
			return refuse("an image is read-only")
		}
	case "privileged", "oom-kill-disable":
		if on {
			return refuse(widening[o.name])
		}
	case "cap-drop", "name", "label", "stop-timeout", "hostname": // a skill has no capability; nobody looks for the rest
	case "security-opt":
		if o.value != "no-new-privileges" && o.value != "no-new-privileges:true" && o.value != "no-new-privileges=true" {
			return refuse(widening[o.name])
		}
	case "network", "net":
		if o.value != "none" {
			return refuse(widening[o.name])
		}
		r.asked.egress = false
	case "pull":
		if o.value != "never" && o.value != "missing" {
			return refuse("an image is fetched when somebody says so: skillbox image pull")
		}
	case "log-driver":
		if o.value != "none" {
			return refuse("output goes to the caller alone")
		}
	case "pids-limit":
		n, err := strconv.ParseInt(o.value, 10, 64)
		if err != nil || n < 1 {
			return t.fail(fmt.Sprintf("--pids-limit: %q is not a limit", o.value), "name a number, 1 or more")
		}
		r.asked.value("resources", "pids", n, t)
	case "memory":
		return r.memory(value)
	case "cpus":
		return r.cpus(value)
	case "env":
		return r.variable(value)
	default:
		why, known := widening[o.name]
		if !known {
			why = "it is none of the options that are known to be harmless"
		}
		return refuse(why)
	}
	return nil
}
