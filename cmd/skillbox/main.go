// skillbox runs a third-party agent skill in a sandbox.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
