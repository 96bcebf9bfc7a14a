package bundle

import (
	"embed"
	"path"
)

// ProgramDir is where the programs lie inside the box, read-only; it is the last place of the box's PATH.
const ProgramDir = ShimDir + "/bin"

//go:embed programs
var programs embed.FS

// Programs returns the programs of ours that stand in for ones which instructions name and a base may not have: file name → content, for
// ProgramDir. Where the base has the real one, that comes first in PATH. The caller owns the map, and nobody the contents.
func Programs() map[string][]byte {
	files := map[string][]byte{}
	for name, source := range map[string]string{
		"python": "python", "uv": "uv", "uvx": "uv", "pip": "uv", "pip3": "uv", "npx": "npx", "npm": "npx",
	} {
		content, err := programs.ReadFile(path.Join("programs", source))
		if err != nil {
			panic(err) // compiled in
		}
		files[name] = content
	}
	return files
}
