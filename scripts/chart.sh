#!/usr/bin/env bash
# Renders envoy/chart with its examples, by Helm itself:
#
#   scripts/chart.sh FOLDER          every rendering that the tests read, and the checksums of what they were made from
#   scripts/chart.sh lint            `helm lint` with the values of each
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: $0 FOLDER|lint}
helm=$(scripts/helm.sh)
# An image that is nowhere.
DIGEST=sha256:$(printf '0%.0s' {1..64})

# rendering NAME NAMESPACE EXAMPLE...
rendering() {
    local name=$1 namespace=$2 example
    local arguments=(envoy/chart --namespace "$namespace" --set "filter.digest=$DIGEST" --values envoy/chart/examples/links.yaml)
    shift 2
    for example in "$@"; do
        arguments+=(--values "envoy/chart/examples/$example.yaml")
    done
    # Helm says that the rules and the dashboard are links.
    if [ "$out" = lint ]; then
        "$helm" lint --strict "${arguments[@]}" 2> >(grep -v 'found symbolic link' >&2)
    else
        "$helm" template weir "${arguments[@]}" >"$out/$name.yaml" 2> >(grep -v 'found symbolic link' >&2)
    fi
}

[ "$out" = lint ] || mkdir -p "$out"
rendering istio-gateway-api links istio-gateway-api
rendering istio-gateway-api-fleet links istio-gateway-api fleet
rendering istio-ingress-gateway istio-ingress istio-ingress-gateway
rendering istio-wasmplugin istio-ingress istio-wasmplugin
rendering istio-sidecar links istio-sidecar
rendering istio-waypoint links istio-waypoint
rendering istio-waypoint-fleet links istio-waypoint fleet
rendering envoy-gateway links envoy-gateway
rendering envoy-gateway-fleet links envoy-gateway fleet operators
if [ "$out" != lint ]; then
    # The rules and the dashboard are in none of them, and what the schema refuses is not rendered.
    find envoy/chart -type f ! -name values.schema.json -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >"$out/SHA256SUMS"
fi
