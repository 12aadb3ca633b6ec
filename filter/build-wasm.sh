#!/usr/bin/env bash
# Builds the filter as target/wasm/filter.wasm and prints nothing when all goes well.
#
#   filter/build-wasm.sh              build
#   filter/build-wasm.sh --guest P    build the package P of tests/guests, as target/wasm/P.wasm
#   filter/build-wasm.sh --clippy     run clippy over the code that only wasm32 compiles, warnings being errors
#   filter/build-wasm.sh --missing build|clippy
#                                     print the Debian packages that the build, or clippy, still needs; build nothing
#
# Whatever of these comes first is used:
#   1. a toolchain (on PATH, or any of rustup's) that has the standard library of wasm32-unknown-unknown;
#   2. rustup, adding the target, unless RUSTUP_AUTO_INSTALL=0 or WEIR_SETUP=0;
#   3. Debian's or Ubuntu's packaged compiler, which builds the standard library from its packaged sources.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh

readonly TARGET=wasm32-unknown-unknown
readonly BUILD_DIR=target/wasm-build
# A download that has not ended by then is taken to have failed.
readonly RUSTUP_SECONDS=180
RUST_VERSION=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
readonly RUST_VERSION

mode=build package=filter only_report=
case "$#,${1-}" in
    0,) ;;
    2,--guest) package=$2 ;;
    1,--clippy) mode=clippy ;;
    2,--missing) mode=$2 only_report=yes ;;
    *)
        echo "usage: $0 [--guest PACKAGE | --clippy | --missing build|clippy]" >&2
        exit 2
        ;;
esac

# What the chosen toolchain needs before and after cargo's subcommand.
cargo=() cargo_flags=()

# Whether the compiler "$@" is new enough and has the target's standard library.
has_target() {
    local version libdir
    version=$("$@" --version 2>/dev/null) || return 1
    version=${version#rustc }
    at_least "${version%% *}" "$RUST_VERSION" || return 1
    libdir=$("$@" --print target-libdir --target "$TARGET" 2>/dev/null) || return 1
    ls "$libdir"/libstd-*.rlib >/dev/null 2>&1
}

has_clippy() {
    [ $mode != clippy ] || "$@" clippy --version >/dev/null 2>&1
}

# 1. An installed toolchain.
use_installed() {
    local toolchain
    if has_target rustc && has_clippy cargo; then
        cargo=(cargo)
        return 0
    fi
    command -v rustup >/dev/null 2>&1 || return 1
    for toolchain in $(rustup toolchain list 2>/dev/null | awk '{print $1}'); do
        if has_target rustup run "$toolchain" rustc && has_clippy rustup run "$toolchain" cargo; then
            cargo=(rustup run "$toolchain" cargo)
            return 0
        fi
    done
    return 1
}

# 2. rustup's own download.
use_rustup() {
    local rustup elapsed=0 log
    command -v rustup >/dev/null 2>&1 || return 1
    if [ "${RUSTUP_AUTO_INSTALL:-1}" = 0 ] || [ "${WEIR_SETUP:-1}" = 0 ]; then
        return 1
    fi
    echo "adding rustup's target $TARGET" >&2
    log=$(mktemp)
    rustup target add "$TARGET" </dev/null >"$log" 2>&1 &
    rustup=$!
    while kill -0 $rustup 2>/dev/null; do
        if [ $elapsed -ge $((RUSTUP_SECONDS * 5)) ]; then
            kill $rustup 2>/dev/null || true
            echo "rustup did not finish within $RUSTUP_SECONDS s" >>"$log"
        fi
        sleep 0.2
        elapsed=$((elapsed + 1))
    done
    if ! wait $rustup; then
        echo "rustup could not add it: $(tail -n 1 "$log")" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
    use_installed
}

# The packages of this release of Debian or Ubuntu whose compiler is new enough: "compiler cargo source clippy".
debian_packages() {
    local set version sets=("rustc-web cargo-web rust-web-src rust-web-clippy" "rustc cargo rust-src rust-clippy")
    for set in "${sets[@]}"; do
        version=$(apt-cache policy "${set%% *}" 2>/dev/null | sed -n 's/^ *Candidate: *//p')
        if [ -n "$version" ] && [ "$version" != "(none)" ] && at_least "$version" "$RUST_VERSION"; then
            echo "$set"
            return 0
        fi
    done
    # New compilers come by way of security updates. A system that has no list of these yet cannot tell; the first set is
    # the likeliest.
    ls /var/lib/apt/lists/*security*_Packages* >/dev/null 2>&1 && return 1
    echo "${sets[0]}"
}

# The linker: rustup carries one for every host, Debian one for all targets.
wasm_linker() {
    local sysroot candidate
    if command -v rustup >/dev/null 2>&1 && sysroot=$(rustc --print sysroot 2>/dev/null); then
        for candidate in "$sysroot"/lib/rustlib/*/bin/rust-lld; do
            [ -x "$candidate" ] && echo "$candidate" && return 0
        done
    fi
    command -v wasm-ld
}

# Sets `wanted` to the packages that make the distribution's compiler able to build for the target.
wanted=()
want_debian() {
    local set
    on_debian || return 1
    if may_install && ! ls /var/lib/apt/lists/*security*_Packages* >/dev/null 2>&1; then
        refresh_package_lists || true
    fi
    # Lists that an image was made with may be older than the update that brought the compiler.
    if ! set=$(debian_packages); then
        may_install && refresh_package_lists || return 1
        set=$(debian_packages) || return 1
    fi
    # shellcheck disable=SC2086 # the names are words
    set -- $set
    wanted=("$1" "$2" "$3")
    [ $mode != clippy ] || wanted+=("$4")
    wasm_linker >/dev/null || wanted+=(lld)
}

# 3. The distribution's compiler and sources.
use_debian() {
    want_debian || return 1
    packages "a Rust compiler that can build for $TARGET" "${wanted[@]}" || exit 1
    # The packaged cargo is no rustup proxy, so rust-toolchain.toml and RUSTUP_TOOLCHAIN mean nothing to it, but what an
    # outer cargo has left in the environment does.
    unset RUSTUP_TOOLCHAIN CARGO RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$(wasm_linker)
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER
    # cargo finds clippy on PATH, where rustup's comes first.
    [ $mode = clippy ] && export PATH="/usr/bin:$PATH"
    cargo=(/usr/bin/cargo)
    # Without features: for a target that cannot unwind, neither unwinding nor the reader of debug information for backtraces.
    cargo_flags=("-Zbuild-std=std,panic_abort" "-Zbuild-std-features=")
}

if [ -n "$only_report" ]; then
    # Where neither helps, the build itself says so.
    use_installed || use_rustup || ! want_debian || missing_packages "${wanted[@]}"
    exit 0
fi

if ! use_installed && ! use_rustup && ! use_debian; then
    cat >&2 <<EOF
cannot compile for $TARGET: no installed Rust toolchain has its standard library, and rustup could not add it
(or was told not to: RUSTUP_AUTO_INSTALL=${RUSTUP_AUTO_INSTALL-}, WEIR_SETUP=${WEIR_SETUP-}). Where rustup can download:
    rustup target add $TARGET
On Debian and Ubuntu a packaged Rust of $RUST_VERSION or later serves as well (rustc-web, cargo-web and rust-web-src, or
rustc, cargo and rust-src; and lld); this system offers none.
EOF
    exit 1
fi

# Panic messages carry file names; the module must not depend on where it was built.
separator=$'\x1f'
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-${HOME-}/.cargo}=/cargo$separator--remap-path-prefix=$PWD=/weir"
export CARGO_ENCODED_RUSTFLAGS

# On a terminal cargo's own progress is welcome; in a log only what went wrong is.
[ -t 2 ] || export CARGO_TERM_QUIET=true

if [ $mode = clippy ]; then
    # The build's own profile, so that procedural macros are there already.
    exec "${cargo[@]}" clippy --locked --package filter --lib --profile wasm --target $TARGET --target-dir $BUILD_DIR \
        ${cargo_flags[@]+"${cargo_flags[@]}"} -- -D warnings
fi

# The crate's own type is rlib: ["cdylib", "rlib"] together would disable link-time optimisation.
"${cargo[@]}" rustc --locked --package "$package" --lib --crate-type cdylib --profile wasm --target $TARGET \
    --target-dir $BUILD_DIR ${cargo_flags[@]+"${cargo_flags[@]}"}

# Replaced in one step, and only by something else, so that a gateway that watches the file sees whole and new ones.
built=$BUILD_DIR/$TARGET/wasm/${package//-/_}.wasm artifact=target/wasm/$package.wasm
if ! cmp -s "$built" "$artifact"; then
    mkdir -p "${artifact%/*}"
    cp "$built" "$artifact.$$"
    mv -f "$artifact.$$" "$artifact"
fi
