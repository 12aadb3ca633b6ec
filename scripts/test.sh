#!/usr/bin/env bash
# Runs the tests part by part. Says which part runs and which are left, goes on after a part that fails, and prints how long each took.
#
#   scripts/test.sh all                  everything
#   scripts/test.sh quick                what needs only Rust and the built module: unit tests, and the gateway's in the simulator
#   scripts/test.sh envoys VERSION...    contract, exactness and updates in these versions of Envoy
set -euo pipefail
cd "$(dirname "$0")/.."

# The oldest Envoy that the filter supports. All other tests run in the newest.
OLDEST_ENVOY=1.36.2

cargo_test() {
    "${CARGO:-cargo}" test --workspace --locked --no-fail-fast "$@"
}

# run PART: a part is the name of a test program, or one of these.
run() {
    case $1 in
        compile) cargo_test --no-run ;;
        units) cargo_test --lib --bins --examples ;;
        # The skipped test needs Redis.
        quick-units) cargo_test --lib --bins --examples -- --skip the_script_answers_what_the_machine_answers ;;
        doctests) cargo_test --doc ;;
        simulator)
            cargo_test --test gateway -- --skip envoy --skip clients:: \
                simulator:: budgets:: faults:: memory:: module:: portability::
            ;;
        # Tests of the simulator are the same whatever the version of Envoy, and so are the plans' limits. Gateways' configurations are for
        # the newest.
        envoy-*)
            ENVOY_VERSION=${1#envoy-} cargo_test --test gateway -- contract:: exactness:: updates:: --skip plans_in_ \
                --skip simulator:: --skip ngx:: --skip no_shared_data:: --skip istio:: --skip envoy_gateway::
            ;;
        *) cargo_test --test "$1" ;;
    esac
}

# The names of all test programs of the workspace, so that none is forgotten.
programs() {
    "${CARGO:-cargo}" metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
targets = [target for package in json.load(sys.stdin)["packages"] for target in package["targets"]]
print(*sorted({target["name"] for target in targets if target["kind"] == ["test"]}))'
}

mode=${1-}
[ $# = 0 ] || shift
case $mode in
    all)
        names=$(programs)
        # shellcheck disable=SC2206 # the names are words
        parts=(compile units doctests $names "envoy-$OLDEST_ENVOY")
        ;;
    quick) parts=(compile quick-units simulator) ;;
    envoys) parts=(compile "${@/#/envoy-}") ;;
    *)
        echo "usage: $0 all|quick|envoys VERSION..." >&2
        exit 2
        ;;
esac

times='' failed=''
for ((index = 0; index < ${#parts[@]}; index++)); do
    part=${parts[index]} left=${parts[*]:index + 1}
    echo "== part $((index + 1)) of ${#parts[@]}: $part${left:+; left: $left} =="
    start=$SECONDS result=''
    if ! run "$part"; then
        result=failed failed="$failed $part"
    fi
    times+=$(printf '%-16s %5d s  %s' "$part" $((SECONDS - start)) "$result")$'\n'
    # The other parts would say the same.
    [ "$part $result" != 'compile failed' ] || break
done

printf '\n%s' "$times"
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
