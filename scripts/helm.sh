#!/usr/bin/env bash
# Prints the path of Helm, which is built from its Go module under target/ when it is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly VERSION=v3.19.4
readonly FOLDER=$PWD/target/tools/helm-$VERSION

if [ ! -x "$FOLDER/helm" ]; then
    go=$(scripts/go.sh)
    GOBIN=$FOLDER "$go" install "helm.sh/helm/v3/cmd/helm@$VERSION" >&2
fi
echo "$FOLDER/helm"
