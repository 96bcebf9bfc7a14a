package engine

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// docker puts together what `docker run` would be asked for: the image's entrypoint, or the one named, then the command, the tool and
// its arguments.
func (r *resolving) docker() error {
	c := r.skill.docker
	if c == nil {
		c = &docker{at: r.skill.source}
	}
	steps := []func(*docker) error{r.image, r.commandLine, r.placed, r.environment, r.limits, r.dockerNetwork, r.volumes, r.gpus, r.rest, r.extra}
	for _, step := range steps {
		if err := step(c); err != nil {
			return err
		}
	}
	return nil
}

// reference is what names an image: an optional registry, a path in small letters, a tag, a digest.
const reference = `^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[a-f0-9]{64})?$`

func (r *resolving) image(c *docker) error {
	ofSource, isImage := strings.CutPrefix(r.skill.source.text, "docker:")
	t := c.image
	if !t.there {
		if !isImage {
			return c.at.fail("no image is named", `add image = "name:tag"`)
		}
		t = r.skill.source
		t.text = ofSource
	} else if isImage && ofSource != t.text {
		r.warn(r.skill.source, "is another image than docker.image, which is the one that runs")
	}
	ref, err := r.plain(t)
	if err != nil {
		return err
	}
	if !regexp.MustCompile(reference).MatchString(ref) {
		return t.fail(fmt.Sprintf("%q is not the name of an image", ref), "NAME, NAME:TAG or REGISTRY/NAME@sha256:…; a directory or an archive is imported first: skillbox image import")
	}
	r.asked.value("rootfs", "base", base(ref), t)
	return nil
}

// base is what a policy calls an image.
func base(ref string) string { return "image:" + ref }

// commandLine says what is run. An entrypoint that is named takes the image's command away, as docker has it; otherwise what follows
// takes the place of the image's command, if anything does.
func (r *resolving) commandLine(c *docker) error {
	var words []string
	for _, t := range c.command {
		words = append(words, t.text)
	}
	words = append(words, r.call.Words...)
	switch {
	case !c.entrypoint.there:
		r.run.Words = words
	case c.entrypoint.text != "":
		r.asked.command([]string{c.entrypoint.text}, c.entrypoint)
		r.run.Words = words
	case len(words) == 0:
		return c.entrypoint.fail("an empty entrypoint leaves nothing to run", "name a command, or a tool after --")
	default: // the image's is not to be used
		r.asked.command(words[:1], c.entrypoint)
		r.run.Words = words[1:]
	}
	return nil
}

// placed says where the skill starts.
func (r *resolving) placed(c *docker) error {
	t := c.workingDir
	if !t.there {
		return nil
	}
	if !path.IsAbs(t.text) {
		return t.fail(fmt.Sprintf("%q is not an absolute path", t.text), "")
	}
	r.run.WorkDir = path.Clean(t.text)
	return nil
}

// environment has NAME=value, and NAME alone for the caller's value.
func (r *resolving) environment(c *docker) error {
	for _, t := range c.environment {
		if err := r.variable(t); err != nil {
			return err
		}
	}
	return nil
}

func (r *resolving) variable(t text) error {
	name, value, literal := strings.Cut(t.text, "=")
	if !literal {
		if _, set := r.Env(name); !set && variableName(name) {
			return nil // as docker does
		}
		value = "${" + name + "}"
	}
	t.text = value
	return r.setVariable(name, t)
}

func (r *resolving) limits(c *docker) error {
	if c.memory.there {
		if err := r.memory(c.memory); err != nil {
			return err
		}
	}
	if c.cpus.there {
		return r.cpus(c.cpus)
	}
	return nil
}

func (r *resolving) memory(t text) error {
	bytes, err := t.bytes()
	if err == nil {
		r.asked.value("resources", "memory", bytes, t)
	}
	return err
}

func (r *resolving) cpus(t text) error {
	cores, err := t.cores()
	if err == nil {
		r.asked.value("resources", "cpu", cores, t)
	}
	return err
}

// dockerNetwork: of networks there is none, or what the operator's policy lets be reached. Where network_access is written, it must allow that.
func (r *resolving) dockerNetwork(c *docker) error {
	switch t := c.network; t.text {
	case "none":
	case "":
		if t.there {
			return t.fail("a network without a name", `write "none" or "bridge"`)
		}
	case "bridge", "default":
		if r.network.there && r.network.text == "false" {
			r.warn(t, "the instance has network_access = false, so there is no network")
			return nil
		}
		r.wantEgress(t)
	case "host":
		return t.fail("is refused: "+widening["network"], `write "bridge" and name in a policy's egress what is reached`)
	default:
		return t.fail(fmt.Sprintf("network %q is not available: there are no networks of containers here", t.text), `write "none" or "bridge"`)
	}
	return nil
}

func (r *resolving) wantEgress(t text) {
	r.asked.egress = true
	r.asked.note("network.egress", t)
}

func (r *resolving) gpus(c *docker) error {
	switch t := c.gpus; {
	case !t.there:
	case t.text == "all":
		r.asked.value("devices", "gpus", "all", t)
	default:
		return t.fail(fmt.Sprintf("%q: GPUs are given all or none", t.text), `write gpus = "all", which the policy must grant`)
	}
	return nil
}

// rest are the fields that change nothing here, or must be what they are.
func (r *resolving) rest(c *docker) error {
	if c.user.there {
		if _, err := r.plain(c.user); err != nil {
			return err
		}
		r.warn(c.user, "does nothing: a skill runs as the sandbox's own user, who has no rights on the host")
	}
	if c.rm.text == "false" {
		r.warn(c.rm, "does nothing: no sandbox is kept after its run")
	}
	if c.readOnly.text == "false" {
		r.warn(c.readOnly, "does nothing: the image is read-only; /tmp, $HOME and /output may be written")
	}
	if c.platform.there {
		system, arch, _ := strings.Cut(c.platform.text, "/")
		arch, _, _ = strings.Cut(arch, "/") // a variant is for the image's store to find
		if system != "linux" || arch != r.Arch {
			return c.platform.fail(fmt.Sprintf("%q is not this machine's platform, linux/%s, and nothing is emulated", c.platform.text, r.Arch), "take an image of this platform")
		}
	}
	return nil
}
