#!/usr/bin/env bash
# OCI images, see scripts/image/image.py:
#
#   scripts/image.sh filter MODULE LAYOUT | backend|ledger BINARY LAYOUT | push [--plain-http] LAYOUT REF | pull [--plain-http] REF LAYOUT
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/venv.sh scripts/image)
exec "$python" scripts/image/image.py "$@"
