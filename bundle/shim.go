package bundle

import (
	"embed"
	"path"
)

// ShimDir is where the shims lie inside the box, read-only.
const ShimDir = "/run/skillbox"

const skillwareShim = "skillware"

//go:embed shim/*.py
var shims embed.FS

// Shims returns the programs of ours that run inside the box in place of a skill's missing main: file name → content, to be placed in
// ShimDir when a Bundle names one. The caller owns the map.
func Shims() map[string][]byte {
	entries, err := shims.ReadDir("shim")
	if err != nil {
		panic(err) // compiled in
	}
	files := make(map[string][]byte, len(entries))
	for _, e := range entries {
		content, err := shims.ReadFile(path.Join("shim", e.Name()))
		if err != nil {
			panic(err)
		}
		files[e.Name()] = content
	}
	return files
}
