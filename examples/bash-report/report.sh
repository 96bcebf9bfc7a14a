#!/bin/bash
# Size, lines and SHA-256 of every file in /input, as /output/report.md.
# bash and coreutils only.
set -euo pipefail
shopt -s nullglob

# json TEXT: TEXT as a JSON string.
json() {
	local text=$1
	text=${text//\\/\\\\}
	text=${text//\"/\\\"}
	text=${text//$'\n'/\\n}
	text=${text//$'\t'/\\t}
	printf '"%s"' "${text//[[:cntrl:]]/?}"
}

fail() {
	printf '{"error": %s}\n' "$(json "$1")"
	exit 1
}

# member NAME: that string of the parameters. A regular expression is no JSON
# parser; for one flat string it will do, and a skill that needs more takes jq.
member() {
	local params text pattern="\"$1\"[[:space:]]*:[[:space:]]*\"(([^\"\\\\]|\\\\.)*)\""
	[[ -r ${SKILLBOX_PARAMS_FILE:-} ]] || return 0
	params=$(<"$SKILLBOX_PARAMS_FILE")
	[[ $params =~ $pattern ]] || return 0
	text=${BASH_REMATCH[1]}
	text=${text//\\\"/\"}
	text=${text//\\\//\/}
	printf '%b' "$text" # \\, \n, \t and \u00e9 mean the same to JSON and to %b
}

# cell TEXT: TEXT fit for one cell of a Markdown table.
cell() {
	local text=${1//[[:cntrl:]]/?}
	printf '%s' "${text//|/\\|}"
}

[[ -d /output && -w /output ]] || fail "there is no /output: run with --output DIR"
title=$(member title)

files=0 bytes=0 rows=
for path in /input/*; do
	[[ -f $path ]] || continue
	size=$(stat -c %s -- "$path")
	lines=$(wc -l <"$path")
	digest=$(sha256sum <"$path")
	rows+="| $(cell "${path#/input/}") | $size | $lines | \`${digest%% *}\` |"$'\n'
	files=$((files + 1)) bytes=$((bytes + size))
done

{
	printf '# %s\n\n' "$(cell "${title:-Files}")"
	printf 'Written %s. %d files, %d bytes.\n' "$(date -u +'%F %T UTC')" "$files" "$bytes"
	[[ -z $rows ]] || printf '\n| file | bytes | lines | SHA-256 |\n|---|--:|--:|---|\n%s' "$rows"
} >/output/report.md

printf '{"report": "report.md", "title": %s, "files": %d, "bytes": %d}\n' "$(json "${title:-Files}")" "$files" "$bytes"
