package engine

import (
	"fmt"
	"maps"
	"slices"
)

type defaults struct {
	capabilities capabilities
	env          map[string]text
}

type capabilities struct {
	network    text
	paths      []text
	pathsNamed bool
}

type instance struct {
	config, env  map[string]text
	capabilities capabilities
}

type skill struct {
	source, runtime, defaultInstance text
	docker                           *docker // nil where there is no such table
	instances                        map[string]*instance
	warnings                         []string
}

// docker is [skills.NAME.docker].
type docker struct {
	at                                                   text // where the table stands
	image, entrypoint, workingDir, memory, cpus, network text
	user, gpus, platform, rm, readOnly                   text
	command, volumes, environment, extra                 []text
	commandNamed                                         bool
}

// manifest reads the whole, so that what is wrong with one skill is found whichever is run.
func (d *document) manifest(root *table, env func(string) (string, bool)) (*Manifest, error) {
	m := &Manifest{file: d.file, env: env, skills: map[string]*skill{}}
	version, err := root.text("version")
	if err != nil {
		return nil, err
	}
	if version.there && version.text != "1" {
		return nil, version.fail(fmt.Sprintf("version %q is not known", version.text), `write version = "1"`)
	}
	var warnings []string
	unknown := func(t *table) {
		for _, name := range t.rest() {
			warnings = append(warnings, t.place(name).fail("is not known here, and does nothing", "").Error())
		}
	}
	over, err := root.table("defaults")
	if err != nil {
		return nil, err
	}
	if m.defaults.env, err = over.pairs("env"); err != nil {
		return nil, err
	}
	if m.defaults.capabilities, err = d.capabilities(over, unknown, &warnings); err != nil {
		return nil, err
	}
	unknown(over)
	all, err := root.table("skills")
	if err != nil {
		return nil, err
	}
	unknown(root)
	common := warnings
	for _, name := range slices.Sorted(maps.Keys(all.values)) {
		warnings = slices.Clone(common)
		t, err := all.table(name)
		if err != nil {
			return nil, err
		}
		if m.skills[name], err = d.skill(t, unknown, &warnings); err != nil {
			return nil, err
		}
		m.skills[name].warnings = warnings
	}
	return m, nil
}

func (d *document) skill(t *table, unknown func(*table), warnings *[]string) (s *skill, err error) {
	s = &skill{instances: map[string]*instance{}}
	for name, into := range map[string]*text{"source": &s.source, "runtime": &s.runtime, "default_instance": &s.defaultInstance} {
		if *into, err = t.text(name); err != nil {
			return nil, err
		}
	}
	if !s.source.there {
		return nil, t.place().fail("a skill needs a source", `such as source = "./skills/name" or "docker:image:tag"`)
	}
	if _, err = t.text("description"); err != nil {
		return nil, err
	}
	ref, err := t.text("ref")
	if err != nil {
		return nil, err
	}
	if ref.there {
		*warnings = append(*warnings, ref.fail("does nothing: nothing is fetched from git here", "").Error())
	}
	t.known = append(t.known, "services")
	if list, ok := t.values["services"].([]any); ok && len(list) > 0 {
		*warnings = append(*warnings, t.place("services").fail("these must run already, and be within what the policy's egress allows", "").Error())
	} else if v, there := t.values["services"]; there && !ok {
		return nil, t.wrong("a list of tables", v, "services")
	}
	if _, there := t.values["docker"]; there {
		sub, err := t.table("docker")
		if err != nil {
			return nil, err
		}
		if s.docker, err = d.docker(sub, warnings); err != nil {
			return nil, err
		}
	}
	instances, err := t.table("instances")
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(instances.values)) {
		one, err := instances.table(name)
		if err != nil {
			return nil, err
		}
		if s.instances[name], err = d.instance(one, unknown, warnings); err != nil {
			return nil, err
		}
	}
	unknown(t)
	return s, nil
}

func (d *document) instance(t *table, unknown func(*table), warnings *[]string) (i *instance, err error) {
	i = &instance{}
	if i.config, err = t.pairs("config"); err != nil {
		return nil, err
	}
	if i.env, err = t.pairs("env"); err != nil {
		return nil, err
	}
	if i.capabilities, err = d.capabilities(t, unknown, warnings); err != nil {
		return nil, err
	}
	if _, err = t.text("description"); err != nil {
		return nil, err
	}
	unknown(t)
	return i, nil
}

func (d *document) capabilities(t *table, unknown func(*table), warnings *[]string) (c capabilities, err error) {
	sub, err := t.table("capabilities")
	if err != nil {
		return c, err
	}
	if c.network, err = sub.boolean("network_access"); err != nil {
		return c, err
	}
	if c.paths, c.pathsNamed, err = sub.texts("allowed_paths"); err != nil {
		return c, err
	}
	sub.known = append(sub.known, "max_concurrent_requests")
	if v, there := sub.values["max_concurrent_requests"]; there {
		if n, ok := v.(int64); !ok || n < 0 {
			return c, sub.place("max_concurrent_requests").fail("must be a whole number, 0 or more", "")
		}
		*warnings = append(*warnings, sub.place("max_concurrent_requests").fail("is not counted here: what runs at a time is for the service's quota to say", "").Error())
	}
	unknown(sub)
	return c, nil
}

// docker reads the table. A key that it does not have is refused where an engine would take it for more rights, and a warning elsewhere.
func (d *document) docker(t *table, warnings *[]string) (c *docker, err error) {
	c = &docker{at: t.place()}
	for name, into := range map[string]*text{
		"image": &c.image, "entrypoint": &c.entrypoint, "working_dir": &c.workingDir, "memory": &c.memory, "cpus": &c.cpus,
		"network": &c.network, "user": &c.user, "gpus": &c.gpus, "platform": &c.platform,
	} {
		if *into, err = t.text(name); err != nil {
			return nil, err
		}
	}
	for name, into := range map[string]*text{"rm": &c.rm, "read_only": &c.readOnly} {
		if *into, err = t.boolean(name); err != nil {
			return nil, err
		}
	}
	for name, into := range map[string]*[]text{"volumes": &c.volumes, "environment": &c.environment, "extra_args": &c.extra} {
		if *into, _, err = t.texts(name); err != nil {
			return nil, err
		}
	}
	if c.command, c.commandNamed, err = t.texts("command"); err != nil {
		return nil, err
	}
	for _, name := range t.rest() {
		if why, widens := widening[flagName(name)]; widens {
			if v, ok := t.values[name].(bool); ok && !v {
				continue // such as privileged = false
			}
			return nil, t.place(name).fail("is refused: "+why, "take it out")
		}
		*warnings = append(*warnings, t.place(name).fail("is not known here, and does nothing", "").Error())
	}
	return c, nil
}
