package bundle

import (
	"embed"
	"encoding/json"
	"path"
)

// ShimDir is where the shims lie inside the box, read-only.
const ShimDir = "/run/skillbox"

const (
	skillwareShim = "skillware"
	skillwareWord = skillwareShim + ".json" // what the shim must know of the manifest, for python reads no YAML of its own
)

// ConfigVariable names the variable by which a host gives a Skillware skill its config, as a JSON object.
const ConfigVariable = "SKILLWARE_CONFIG"

//go:embed shim/*.py
var shims embed.FS

// ShimFiles returns the programs of ours that run inside the box in place of a skill's missing main, and what they must know of its
// manifest: file name → content, to be placed in ShimDir. It is nil when the bundle names no shim. The caller owns the map.
func (b *Bundle) ShimFiles() map[string][]byte {
	if b.Shim == "" {
		return nil
	}
	entries, err := shims.ReadDir("shim")
	if err != nil {
		panic(err) // compiled in
	}
	files := make(map[string][]byte, len(entries)+1)
	for _, e := range entries {
		content, err := shims.ReadFile(path.Join("shim", e.Name()))
		if err != nil {
			panic(err)
		}
		files[e.Name()] = content
	}
	word := struct {
		Manifest     json.RawMessage `json:"manifest"`
		Requirements []string        `json:"requirements"`
		EnvVars      []string        `json:"env_vars"`
	}{b.Document, b.Requirements, b.EnvVars}
	if files[skillwareWord], err = json.Marshal(word); err != nil {
		panic(err) // made of JSON
	}
	return files
}
