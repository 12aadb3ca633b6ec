#!/usr/bin/env bash
# Builds a guest of tests/guests that is in another language than Rust, unless what was built is of these very sources,
# and prints the path of its module:
#
#   scripts/guest.sh assemblyscript|cpp|go
set -euo pipefail
language=${1:?usage: $0 assemblyscript|cpp|go}
cd "$(dirname "$0")/.."
readonly SOURCES=tests/guests/$language
readonly CPP_SDK=tests/guests/third_party/proxy-wasm-cpp-sdk
readonly BUILT=$PWD/target/wasm/$language.wasm
# Copied beside the module once it is complete.
readonly STAMP=$BUILT.sources

mkdir -p target/wasm
sources=$(find "$SOURCES" $CPP_SDK scripts/guest.sh -type f -exec cksum {} + | sort)
if [ -e "$BUILT" ] && [ "$sources" = "$(cat "$STAMP" 2>/dev/null)" ]; then
    echo "$BUILT"
    exit 0
fi
rm -f "$STAMP"
case $language in
    assemblyscript)
        modules=$(scripts/node-modules.sh "$SOURCES")
        node=$(scripts/node.sh)
        # The compiler looks for packages beside the sources.
        rm -rf "$modules/assembly"
        cp -R "$SOURCES/assembly" "$modules"
        (
            cd "$modules"
            "$node" node_modules/assemblyscript/bin/asc assembly/index.ts --binaryFile "$BUILT" \
                --use abort=abort_proc_exit --optimize >&2
        )
        ;;
    cpp)
        # As the SDK's own makefile does, without protocol buffers.
        em++ --std=c++17 -O2 -Wall -Wextra --no-entry --js-library $CPP_SDK/proxy_wasm_intrinsics.js \
            -sSTANDALONE_WASM -sEXPORTED_FUNCTIONS=_malloc -sALLOW_MEMORY_GROWTH=1 \
            -isystem $CPP_SDK $CPP_SDK/proxy_wasm_intrinsics.cc "$SOURCES/filter.cc" -o "$BUILT" >&2
        ;;
    go)
        go=$(scripts/go.sh)
        GOOS=wasip1 GOARCH=wasm GOTOOLCHAIN=local GOFLAGS='' GOPROXY=off GOCACHE=$PWD/target/go \
            "$go" build -C "$SOURCES" -trimpath -buildmode=c-shared -o "$BUILT" . >&2
        ;;
    *)
        echo "usage: $0 assemblyscript|cpp|go" >&2
        exit 2
        ;;
esac
echo "$sources" >"$STAMP"
echo "$BUILT"
