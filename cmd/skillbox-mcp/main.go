// skillbox-mcp is skillbox for the Model Context Protocol: skills as tools of a server, and servers in boxes. The program skillbox becomes it by
// exec(2) for `skillbox mcp`, whose words it takes as they are.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
