#!/usr/bin/env bash
# Writes the bill of materials of packages of the workspace, as CycloneDX 1.5 in JSON: each dependency with its version, licence and origin.
#
#   scripts/bills-of-materials.sh FOLDER PACKAGE...     writes FOLDER/PACKAGE.cdx.json for each
#
# Needs cargo-cyclonedx, which describes the workspace as a whole: a crate is listed with every feature that a package of the workspace
# asks of it.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: $0 FOLDER PACKAGE..." >&2
    exit 2
fi
folder=$1
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
HOST=$(rustc -vV | sed -n 's/^host: //p')

# cargo-cyclonedx writes a file of this name beside the Cargo.toml of each package of the workspace.
readonly NAME=bill-of-materials-of-dist
clean() {
    find . -path ./target -prune -o -name "$NAME.json" -exec rm -f {} +
}
trap clean EXIT

for package in "$@"; do
    target=$HOST
    [ "$package" != filter ] || target=wasm32-unknown-unknown
    # path+file:///the/folder#version
    place=$("$CARGO" pkgid --locked -p "$package")
    place=${place#*://}
    place=${place%#*}
    "$CARGO" cyclonedx --quiet --manifest-path "$place/Cargo.toml" --format json --spec-version 1.5 --no-build-deps --target "$target" \
        --override-filename "$NAME"
    # Packages of the workspace are named by their place in it, wherever it lies.
    sed "s|file://$PWD/|file:///|g" "$place/$NAME.json" >"$folder/$package.cdx.json"
done
