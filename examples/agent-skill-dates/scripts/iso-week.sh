#!/bin/bash
# Prints the ISO 8601 week of each date, as 2026-01-01 2026-W01-4.
set -euo pipefail

[[ $# -gt 0 ]] || set -- "$(date +%F)"
for day; do
	[[ $day =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || {
		printf 'iso-week: %q is not a date like 2026-01-31\n' "$day" >&2
		exit 2
	}
	# Noon in UTC: no clock change can move it to another day.
	date -u -d "$day 12:00" +'%F %G-W%V-%u'
done
