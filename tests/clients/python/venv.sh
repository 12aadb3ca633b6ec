#!/usr/bin/env bash
# Prints the Python that has the pinned client, in a virtual environment under target/ that is made when it is needed.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

readonly REQUIREMENTS=tests/clients/python/requirements.txt
readonly VENV=$PWD/target/clients/python
# Copied into the environment once it is complete.
readonly STAMP=$VENV/requirements.txt

if ! cmp -s $REQUIREMENTS "$STAMP"; then
    python=$(find_python) || {
        echo "Python 3.10 or later with venv is needed" >&2
        exit 1
    }
    "$python" -m venv --clear "$VENV"
    "$VENV/bin/pip" --disable-pip-version-check install --quiet --require-hashes --only-binary :all: \
        --requirement $REQUIREMENTS >&2
    cp $REQUIREMENTS "$STAMP"
fi
echo "$VENV/bin/python"
