// Package cli is what skillbox's programs for people have in common: how a command ends, and how text comes to a terminal.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"skillbox/helper"
)

// Exit is what a command wants the process to exit with, after it has said everything itself.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Root makes a command the first of its program: named as the program that people call, and saying nothing that Run does not.
func Root(root *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	root.Use, root.SilenceErrors, root.SilenceUsage = "skillbox", true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(commands...)
	return root
}

// Run runs the command that args name and returns what the process is to exit with: failed after an error, which a person is told.
func Run(ctx context.Context, root *cobra.Command, args []string, failed int) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code Exit
	switch {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		Complain(err)
		return failed
	}
	return 0
}

// Complain is the one place where an error is shown to a person. It may quote a skill's words.
func Complain(err error) {
	fmt.Fprintf(os.Stderr, "skillbox: %s\n", VisibleLines(err.Error()))
	if hint := hint(err); hint != "" {
		fmt.Fprintf(os.Stderr, "skillbox: hint: %s\n", VisibleLines(hint))
	}
}

func hint(err error) string {
	var e *helper.Error
	var other interface{ Hint() string }
	switch {
	case errors.As(err, &e):
		return e.Hint
	case errors.As(err, &other):
		return other.Hint()
	}
	return ""
}

// Visible writes out what a terminal would obey in a line, as \x1b or \u202e.
func Visible(line string) string {
	if strings.IndexFunc(line, Unprintable) < 0 && utf8.ValidString(line) {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		if Unprintable(r) {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// VisibleLines is Visible for a text of several lines, such as all that is wrong with a policy.
func VisibleLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Visible(line)
	}
	return strings.Join(lines, "\n")
}

// Unprintable tells what a terminal might obey, or not show, from text.
func Unprintable(r rune) bool { return r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError }

// InertJSON writes out what a terminal would obey within JSON, which has such characters only within texts and lets them stand there: DEL, the C1
// controls and those that turn the direction of text or are not seen. Controls below the space JSON itself does not let stand.
func InertJSON(text []byte) []byte {
	if bytes.IndexFunc(text, inert) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !inert(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func inert(r rune) bool { return r > '~' && Unprintable(r) && r != utf8.RuneError }

// JSONOut is standard output for an encoder of JSON, which writes a value at once.
type JSONOut struct{}

// Write writes text as InertJSON has it.
func (JSONOut) Write(text []byte) (int, error) {
	if _, err := os.Stdout.Write(InertJSON(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}
