#!/usr/bin/env bash
# Runs the tests part by part, in two lanes, and goes on after a part that fails. At the end it prints how long each part took, and how much
# time of the processors.
#
#   scripts/test.sh all                  everything
#   scripts/test.sh quick                what needs only Rust and the built module: unit tests, and the gateway's in the simulator
#   scripts/test.sh envoys [VERSION...]  contract, exactness and updates in these versions of Envoy, or in the oldest
#
# Tests in a module `alone` take the whole machine, or measure time: they run one after the other. Everything else runs beside each other, two
# parts at a time, and the output of a part follows when it has ended.
set -euo pipefail
cd "$(dirname "$0")/.."

# The oldest Envoy that the filter supports. All other tests run in the newest.
OLDEST_ENVOY=1.36.2
ALONE=alone::
AT_A_TIME=2

cargo_test() {
    "${CARGO:-cargo}" test --workspace --locked --no-fail-fast "$@"
}

# run PART: a part is the name of a test program, or one of these.
run() {
    case $1 in
        # And the commands that tests start, as they ask for them.
        compile) cargo_test --no-run && "${CARGO:-cargo}" build --locked --bins ;;
        alone) cargo_test --lib --bins --examples --tests -- $ALONE --test-threads=1 ;;
        units) cargo_test --lib --bins --examples -- --skip $ALONE ;;
        # The skipped test needs Redis.
        quick-units)
            cargo_test --lib --bins --examples -- --skip $ALONE --skip the_script_answers_what_the_machine_answers
            ;;
        doctests) cargo_test --doc ;;
        simulator)
            cargo_test --test gateway -- --skip envoy --skip clients:: \
                simulator:: budgets:: faults:: memory:: module:: portability::
            ;;
        # What a version of Envoy may change: whether the module's imports are there, and what becomes of requests.
        contract-*) ENVOY_VERSION=${1#contract-} cargo_test --test gateway -- contract::envoy:: ;;
        # Tests of the simulator are the same whatever the version of Envoy, and so are the plans' limits. Gateways' configurations are for
        # the newest.
        envoy-*)
            ENVOY_VERSION=${1#envoy-} cargo_test --test gateway -- contract:: exactness:: updates:: --skip plans_in_ \
                --skip simulator:: --skip ngx:: --skip no_shared_data:: --skip istio:: --skip envoy_gateway::
            ;;
        *) cargo_test --test "$1" -- --skip $ALONE ;;
    esac
}

# The names of all test programs of the workspace, so that none is forgotten.
programs() {
    "${CARGO:-cargo}" metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
targets = [target for package in json.load(sys.stdin)["packages"] for target in package["targets"]]
print(*sorted({target["name"] for target in targets if target["kind"] == ["test"]}))'
}

# timed PART: runs it. What it took is in a file, and so is whether it failed.
timed() {
    local TIMEFORMAT='%R %U %S'
    { time run "$1" 2>&3; } 3>&2 2>"$work/$1.took" || : >"$work/$1.failed"
}

# take PART...: runs one part after the other, but for those that were taken already.
take() {
    local part result
    for part in "$@"; do
        mkdir "$work/$part.taken" 2>/dev/null || continue
        echo "== begins: $part =="
        timed "$part" >"$work/$part.log" 2>&1
        result=ended
        [ ! -e "$work/$part.failed" ] || result=failed
        echo "== $result: $part =="
        cat "$work/$part.log"
    done
}

# beside PART...: runs them beside each other.
beside() {
    local runner
    for ((runner = 0; runner < AT_A_TIME; runner++)); do
        take "$@" &
    done
    wait
}

table() {
    local part took
    printf '\n%-16s %7s %7s\n' part time CPU
    for part in "$@"; do
        [ -e "$work/$part.took" ] || continue
        read -r -a took < <(tail -n 1 "$work/$part.took")
        awk -v part="$part" -v result="$([ ! -e "$work/$part.failed" ] || echo failed)" \
            '{ printf "%-16s %5d s %5d s  %s\n", part, $1, $2 + $3, result }' <<<"${took[*]}"
    done
}

mode=${1-}
[ $# = 0 ] || shift
parts=() alone=()
case $mode in
    all)
        # The longest first, so that no processor waits for it at the end.
        parts=(gateway fleet suite)
        for name in $(programs); do
            case " ${parts[*]} " in
                *" $name "*) ;;
                *) parts+=("$name") ;;
            esac
        done
        parts+=("contract-$OLDEST_ENVOY" doctests units)
        alone=(alone)
        ;;
    quick) parts=(quick-units simulator) ;;
    envoys)
        [ $# -gt 0 ] || set -- "$OLDEST_ENVOY"
        parts=("${@/#/envoy-}")
        ;;
    *)
        echo "usage: $0 all|quick|envoys [VERSION...]" >&2
        exit 2
        ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== compile =="
timed compile
# The other parts would say the same.
if [ ! -e "$work/compile.failed" ]; then
    beside "${parts[@]}"
    for part in ${alone[@]+"${alone[@]}"}; do
        echo "== $part =="
        timed "$part"
    done
fi

table compile "${parts[@]}" ${alone[@]+"${alone[@]}"}
failed=$(cd "$work" && for file in *.failed; do [ ! -e "$file" ] || printf ' %s' "${file%.failed}"; done)
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
