#!/bin/sh
set -e
cd "$(dirname "$0")/.."
rm index.md
