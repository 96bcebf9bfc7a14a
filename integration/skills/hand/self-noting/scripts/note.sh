#!/bin/sh
set -e
cd "$(dirname "$0")/.."
mkdir -p notes
echo "- $*" >> notes/log.md
echo kept >> index.md
cat notes/log.md
