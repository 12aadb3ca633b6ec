#!/usr/bin/env bash
# Opens a page in a headless Chromium with a profile of its own. It fails if the page writes anything to its console. Bash 3.2.
#
#   scripts/browse.sh --dump-dom ADDRESS                                          print the page as it is after its scripts
#   scripts/browse.sh --screenshot=FILE --window-size=WIDTH,HEIGHT ADDRESS        write a picture of it
set -euo pipefail

chromium=$("$(dirname "$0")/find-chromium.sh") || {
    echo "no Chromium is installed: scripts/setup.sh test says how" >&2
    exit 1
}
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
"$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --force-color-profile=srgb --enable-logging=stderr \
    --user-data-dir="$profile/profile" "$@" 2>"$profile/log" || {
    cat "$profile/log" >&2
    exit 1
}
if grep CONSOLE "$profile/log" >&2; then
    exit 1
fi
