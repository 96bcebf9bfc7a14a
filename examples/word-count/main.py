"""Counts the words of a text: JSON parameters on stdin, a JSON result on stdout."""

import collections
import json
import re
import sys

# Letters and digits of any script, with an apostrophe or hyphen inside: don't, x-ray, été.
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def count(text, top):
    words = [word.casefold() for word in WORD.findall(text)]
    frequent = collections.Counter(words).most_common()
    # Equal counts in alphabetical order, so that the same text always gives the same answer.
    frequent.sort(key=lambda pair: (-pair[1], pair[0]))
    return {
        "words": len(words),
        "unique": len(frequent),
        "top": frequent[:top],
        "lines": len(text.splitlines()),
        "characters": len(text),
    }


def main():
    params = json.loads(sys.stdin.read() or "{}")
    if not isinstance(params, dict):
        raise ValueError("the parameters must be a JSON object")
    top = params.get("top", 10)
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError('"top" must be a whole number, 0 or more')
    if isinstance(params.get("text"), str):
        text = params["text"]
    elif isinstance(params.get("path"), str):
        with open(params["path"], encoding="utf-8", errors="replace") as file:
            text = file.read()
    else:
        raise ValueError('give "text", or the "path" of a file such as /input/notes.txt')
    return count(text, top)


if __name__ == "__main__":
    try:
        print(json.dumps(main(), ensure_ascii=False))
    except (OSError, ValueError) as err:
        print(json.dumps({"error": str(err)}))
        sys.exit(1)
