package policy

import "slices"

// LimitEnv narrows what is passed of the caller's environment, secrets too, to names: the variables that a skill of a kind whose manifest
// lists all that it reads has there. source says where, such as "manifest.yaml: env_vars". Values that the policy itself sets stay. It
// returns those of names that the skill does not get from anywhere, in their order.
func (g *Granted) LimitEnv(names []string, source string) (without []string) {
	env := &g.Policy.Env
	for _, list := range []struct {
		field string
		names *[]string
	}{{"env.pass", &env.Pass}, {"env.secrets", &env.Secrets}} {
		var kept []string
		for _, name := range *list.names {
			if slices.Contains(names, name) {
				kept = append(kept, name)
				continue
			}
			asked := g.Policy.Position(list.field).String()
			g.Narrowed = append(g.Narrowed, Note{list.field, name, nothing, asked, source + " does not name it"})
		}
		*list.names = kept
	}
	for _, name := range names {
		_, set := env.Set[name]
		if !set && !slices.Contains(env.Pass, name) && !slices.Contains(env.Secrets, name) {
			without = append(without, name)
		}
	}
	return without
}
