// skillbox-scan looks into skills: it runs them under observation and judges, learns and shows what they did. The program skillbox becomes
// it by exec(2) for `skillbox scan`, `skillbox policy learn` and `skillbox audit report`, whose words it takes as they are.
package main

import "os"

func main() { os.Exit(run(os.Args[1:])) }
