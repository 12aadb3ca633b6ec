#!/usr/bin/env bash
# Prints the Python of a virtual environment that has what a folder's requirements.txt pins:
#
#   scripts/venv.sh tests/clients/python
#
# It is made under target/venv when it is needed.
set -euo pipefail
folder=${1:?usage: $0 FOLDER}
cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

readonly REQUIREMENTS=$folder/requirements.txt
readonly VENV=$PWD/target/venv/${folder//\//-}
# Copied into the environment once it is complete.
readonly STAMP=$VENV/requirements.txt

# Of several who need it at once, one makes it.
mkdir -p target/venv
exec 9>"$VENV.lock"
if command -v flock >/dev/null 2>&1; then
    flock 9
fi
if ! cmp -s "$REQUIREMENTS" "$STAMP"; then
    python=$(find_python) || {
        echo "Python 3.10 or later with venv is needed" >&2
        exit 1
    }
    "$python" -m venv --clear "$VENV"
    "$VENV/bin/pip" --disable-pip-version-check install --quiet --require-hashes --only-binary :all: \
        --requirement "$REQUIREMENTS" >&2
    cp "$REQUIREMENTS" "$STAMP"
fi
echo "$VENV/bin/python"
