// generate writes the skills of package skills into an empty directory, to be looked at or given to `skillbox test`.
package main

import (
	"fmt"
	"os"

	"skillbox/integration/skills"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: generate DIRECTORY")
		os.Exit(2)
	}
	counts, err := skills.Write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
	for _, layout := range skills.Layouts(counts) {
		fmt.Printf("%-12s %d\n", layout, counts[layout])
	}
}
