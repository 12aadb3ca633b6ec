#!/usr/bin/env bash
# Fuzzes, guided by coverage: every target of every */fuzz folder, one after the other, and prints a table.
#
#   scripts/fuzz.sh SECONDS [TARGET...]     SECONDS for each target; all targets unless some are named
#   scripts/fuzz.sh --check                 only looks whether what it needs is here
#
# What is found along the way is kept under target/fuzz and gone on from the next time. An input that fails stays there too, and
# the run ends with an error that names it.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_EACH=${1:?usage: $0 SECONDS [TARGET...] | --check}
shift
readonly WORK=$PWD/target/fuzz

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    echo "make fuzz needs a nightly Rust toolchain: rustup toolchain install nightly" >&2
    exit 1
fi
# libFuzzer is C++.
if ! command -v c++ >/dev/null 2>&1; then
    echo "make fuzz needs a C++ compiler (Debian, Ubuntu: build-essential)" >&2
    exit 1
fi
[ "$SECONDS_EACH" != --check ] || exit 0
export PATH=$PWD/target/tools/bin:$PATH

fuzz() {
    rustup run nightly cargo fuzz "$@"
}

# Whether target "$1" is wanted: all are, unless some were named.
wanted() {
    local target=$1 name
    shift
    [ $# -gt 0 ] || return 0
    for name in "$@"; do
        [ "$name" = "$target" ] && return 0
    done
    return 1
}

# What host-sim and the command on it must show is that nothing makes it panic, and wasmtime is the better part of it: with an address sanitizer it
# takes hours to build on a small machine, and the sanitizer and wasmtime's own handling of signals get in each other's way.
sanitizer() {
    case $1 in host-sim/fuzz | weir/fuzz) echo none ;; *) echo address ;; esac
}

rows=() failed=
for folder in */fuzz; do
    [ -e "$folder/Cargo.toml" ] || continue
    for target in $(fuzz list --fuzz-dir "$folder"); do
        wanted "$target" "$@" || continue
        here=$WORK/${folder%/fuzz}/$target
        mkdir -p "$here/corpus"
        # Time is the wall's: a machine that is busy with something else must not make an input look slow.
        corpus=("$here/corpus") options=("-max_total_time=$SECONDS_EACH" "-artifact_prefix=$here/" -print_final_stats=1 -timeout=300)
        [ ! -d "$folder/seeds/$target" ] || corpus+=("$folder/seeds/$target")
        [ ! -e "$folder/dictionaries/$target.dict" ] || options+=("-dict=$folder/dictionaries/$target.dict")
        echo "$folder $target" >&2
        ok=ok
        fuzz run --fuzz-dir "$folder" --target-dir "$WORK/build" --sanitizer "$(sanitizer "$folder")" "$target" "${corpus[@]}" -- "${options[@]}" \
            >"$here/log" 2>&1 || ok=FAILED failed=yes
        # A run's last progress line: "#N DONE cov: C ft: F corp: …"; its statistics: "stat::number_of_executed_units: N".
        executed=$(LC_ALL=C sed -n 's/^stat::number_of_executed_units: *//p' "$here/log" | tail -n 1)
        covered=$(LC_ALL=C sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$here/log" | tail -n 1)
        rows+=("${folder%/fuzz}"$'\t'"$target"$'\t'"${executed:-?}"$'\t'"${covered:-?}"$'\t'"$ok")
        [ $ok = ok ] || tail -n 40 "$here/log" >&2
    done
done
printf '%s\n' ${rows[@]+"${rows[@]}"} | scripts/table.sh crate target executions coverage result
[ -z "$failed" ]
