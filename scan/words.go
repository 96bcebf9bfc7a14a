package scan

import (
	"errors"
	"strings"
)

// Words splits a command as a shell splits words with quotes and backslashes in them. Nothing is expanded, and nothing is run by a shell.
func Words(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune // the one that is open, or 0
	inside, escaped := false, false
	for _, r := range text {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inside = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inside {
				words = append(words, word.String())
				word.Reset()
				inside = false
			}
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed, or the last backslash stands alone")
	}
	if inside {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("there is no command in it")
	}
	return words, nil
}
