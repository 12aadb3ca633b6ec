#!/usr/bin/env bash
# Installs the pinned client, as package-lock.json has it, into a folder under target/, and prints the folder.
set -euo pipefail
cd "$(dirname "$0")"
readonly FOLDER=$PWD/../../../target/clients/typescript
# Copied beside the client once it is complete.
readonly STAMP=$FOLDER/installed.json

if ! cmp -s package-lock.json "$STAMP"; then
    rm -rf "$FOLDER"
    mkdir -p "$FOLDER"
    cp package.json package-lock.json "$FOLDER"
    npm ci --prefix "$FOLDER" --ignore-scripts --no-audit --no-fund --silent >&2
    cp package-lock.json "$STAMP"
fi
cd "$FOLDER"
pwd
