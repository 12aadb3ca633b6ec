#!/usr/bin/env bash
# Checks the workflows of .github with actionlint, in the version of scripts/actionlint/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$(scripts/go.sh)
cd scripts/actionlint
exec "$go" tool actionlint ../../.github/workflows/*.yml
