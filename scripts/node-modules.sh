#!/usr/bin/env bash
# Installs what a folder's package-lock.json pins, and prints the folder under target/ that has it:
#
#   scripts/node-modules.sh tests/clients/typescript
set -euo pipefail
folder=${1:?usage: $0 FOLDER}
cd "$(dirname "$0")/.."
readonly INSTALLED=$PWD/target/node-modules/${folder//\//-}
# Copied beside the packages once they are complete.
readonly STAMP=$INSTALLED/installed.json

if ! cmp -s "$folder/package-lock.json" "$STAMP"; then
    rm -rf "$INSTALLED"
    mkdir -p "$INSTALLED"
    cp "$folder/package.json" "$folder/package-lock.json" "$INSTALLED"
    npm ci --prefix "$INSTALLED" --ignore-scripts --no-audit --no-fund --silent >&2
    cp "$folder/package-lock.json" "$STAMP"
fi
echo "$INSTALLED"
