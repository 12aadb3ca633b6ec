#!/usr/bin/env bash
# Writes what is released for this machine's architecture to dist/: the module, the programs, the images, the chart, the book, the bills of
# materials, VERSION and SHA256SUMS.
#
# IMAGES, such as registry.example.com/weir, is where the images of this release are: the chart and the page Install name it.
#
#   scripts/dist.sh            builds everything
#   scripts/dist.sh MODULE     takes the module from a file, so that releases for several machines have the same one
#
# On Linux the programs are linked statically, so they run on every distribution. Images of the services are for Linux and are left out
# elsewhere. Builds of one commit with one toolchain give the same module, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly OUT=dist
readonly PROGRAMS=(weir weir-ledger host-sim backend weir-demo)
# The packages that have the programs, in the same order.
readonly PACKAGES=(weir ledger host-sim-cli backend demo)
CARGO=${CARGO:-cargo}
export PATH=$PWD/target/tools/bin:$PATH
HOST=$(rustc -vV | sed -n 's/^host: //p')
# The time that generated files state: that of the commit.
if committed=$(git log -1 --format=%ct 2>/dev/null); then
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$committed}
fi

step() {
    echo "dist: $1" >&2
}

hash_files() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$@"
    else
        shasum -a 256 "$@"
    fi
}

# Written beside the old folder, which stays until everything has been built.
new=$OUT.new
rm -rf "$new"
mkdir -p "$new"

# Puts the place of the images into a file.
name_images() {
    sed "s|registry\.example\.com/weir|${IMAGES:-registry.example.com/weir}|g" "$1" >"$1.new"
    mv "$1.new" "$1"
}

step "1/6 filter.wasm"
module=${1-}
if [ -z "$module" ]; then
    filter/build-wasm.sh
    module=target/wasm/filter.wasm
fi
cp "$module" "$new/filter.wasm"

step "2/6 ${PROGRAMS[*]}, for $HOST"
# Messages of a panic have file names, and those must not depend on where the program was built.
separator=$'\x1f'
flags="--remap-path-prefix=${CARGO_HOME:-${HOME-}/.cargo}=/cargo$separator--remap-path-prefix=$PWD=/weir"
case $HOST in
    *-linux-*) flags="$flags$separator-Ctarget-feature=+crt-static" ;;
esac
selected=()
for package in "${PACKAGES[@]}"; do
    selected+=(-p "$package")
done
# With --target the flags are for the programs alone: a procedural macro cannot be linked statically.
CARGO_ENCODED_RUSTFLAGS=$flags $CARGO build --locked --release --bins --target "$HOST" "${selected[@]}"
for program in "${PROGRAMS[@]}"; do
    cp "${CARGO_TARGET_DIR:-target}/$HOST/release/$program" "$new/"
done

step "3/6 images and the chart"
# Its links become files.
cp -RL envoy/chart "$new/chart"
name_images "$new/chart/values.yaml"
scripts/image.sh filter "$new/filter.wasm" "$new/images/filter"
if [ "$(uname)" = Linux ]; then
    scripts/image.sh backend "$new/backend" "$new/images/backend"
    scripts/image.sh ledger "$new/weir-ledger" "$new/images/ledger"
fi

step "4/6 the book"
mdbook build docs --dest-dir "$PWD/$new/book"
name_images "$new/book/install.html"

step "5/6 bills of materials"
scripts/bills-of-materials.sh "$new/sbom" filter "${PACKAGES[@]}"

step "6/6 SHA256SUMS"
cp LICENSE "$new/"
echo "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1), commit $(git rev-parse HEAD 2>/dev/null || echo unknown)" >"$new/VERSION"
(
    cd "$new"
    while IFS= read -r file; do
        hash_files "$file"
    done < <(find . -type f ! -name SHA256SUMS | sed 's|^\./||' | LC_ALL=C sort) >SHA256SUMS
)

rm -rf "$OUT"
mv "$new" "$OUT"
echo "wrote $OUT:"
(cd "$OUT" && for name in *; do printf '  %s\n' "$name"; done)
