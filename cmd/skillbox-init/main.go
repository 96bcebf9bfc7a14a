// skillbox-init is pid 1 of every box. It is started by skillboxd only; see package boxinit.
package main

import "skillbox/boxinit"

func main() { boxinit.Main() }
