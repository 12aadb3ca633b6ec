#!/usr/bin/env bash
# Prints the path of a Chromium, or of a Chrome, that is installed; fails when there is none. Bash 3.2.
set -euo pipefail

for candidate in chromium chromium-browser google-chrome google-chrome-stable \
    "/Applications/Chromium.app/Contents/MacOS/Chromium" \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
    command -v "$candidate" && exit 0
done
exit 1
