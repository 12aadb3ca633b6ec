// Validates Kubernetes documents against the published schemas, and prints what is wrong with each:
//
//   node validate.mjs NODE-MODULES FILE...
//
// The output is a JSON array with an object for each document: file, document and errors. The packages' validators judge values and accept
// unknown fields. The TypeScript compiler finds these by the packages' types. The rules in CEL, which no package has, are below.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { typeErrors } from "./compiler.mjs";

const [modules, ...files] = process.argv.slice(2);
const packages = path.join(path.resolve(modules), "node_modules");
const YAML = createRequire(path.join(packages, "index.js"))("yaml");

const WASM_PLUGIN = "extensions.istio.io/v1alpha1 WasmPlugin";
const MODELS = {
    "v1 ConfigMap": "kubernetes-models/v1/ConfigMap",
    "v1 Namespace": "kubernetes-models/v1/Namespace",
    "v1 Service": "kubernetes-models/v1/Service",
    "apps/v1 Deployment": "kubernetes-models/apps/v1/Deployment",
    "networking.k8s.io/v1 NetworkPolicy": "kubernetes-models/networking.k8s.io/v1/NetworkPolicy",
    "policy/v1 PodDisruptionBudget": "kubernetes-models/policy/v1/PodDisruptionBudget",
    "monitoring.coreos.com/v1 PodMonitor": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1 PrometheusRule": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
    "networking.istio.io/v1 DestinationRule": "@kubernetes-models/istio/networking.istio.io/v1/DestinationRule",
    "networking.istio.io/v1alpha3 EnvoyFilter": "@kubernetes-models/istio/networking.istio.io/v1alpha3/EnvoyFilter",
    "networking.istio.io/v1 ServiceEntry": "@kubernetes-models/istio/networking.istio.io/v1/ServiceEntry",
    "security.istio.io/v1 PeerAuthentication": "@kubernetes-models/istio/security.istio.io/v1/PeerAuthentication",
    [WASM_PLUGIN]: "@kubernetes-models/istio/extensions.istio.io/v1alpha1/WasmPlugin",
    "gateway.networking.k8s.io/v1 Gateway": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/Gateway",
    "gateway.networking.k8s.io/v1 GatewayClass": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/GatewayClass",
    "gateway.networking.k8s.io/v1 HTTPRoute": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute",
};
for (const kind of ["BackendTrafficPolicy", "ClientTrafficPolicy", "EnvoyExtensionPolicy", "EnvoyPatchPolicy", "EnvoyProxy"]) {
    MODELS[`gateway.envoyproxy.io/v1alpha1 ${kind}`] = `@kubernetes-models/envoy-gateway/gateway.envoyproxy.io/v1alpha1/${kind}`;
}

// No package has TrafficExtension. Its spec.wasm and the rest of its spec are the fields of a WasmPlugin's spec.
const TRAFFIC_EXTENSION = "extensions.istio.io/v1alpha1 TrafficExtension";
const OUTER = ["selector", "targetRefs", "phase", "priority", "match"];
const WASM = [
    "url", "sha256", "imagePullPolicy", "imagePullSecret", "pluginName", "pluginConfig", "failStrategy", "vmConfig", "type",
];

// The rules of the custom resource definitions of Istio 1.30 and Envoy Gateway 1.9 for the fields that are used here, in their own words
// but for two functions of Istio's: oneof() is written out, and isURL() and url() are a regular expression.
const SCHEMES = "!self.contains('://') || self.matches('^(http|https|file|oci)://')";
const ENVIRONMENT = ["value may only be set when valueFrom is INLINE", "!has(self.valueFrom) || self.valueFrom != 'HOST' || !has(self.value)"];
const GATEWAY_API = "gateway.networking.k8s.io";
const ROUTES = "['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']";
const XROUTES = ROUTES.replace("'Gateway', 'ListenerSet', ", "");
// Fields of `spec` that Envoy Gateway 1.8 and 1.9 have and the package does not: only the rules judge them.
const NEWER = { EnvoyProxy: ["mergeType"], EnvoyExtensionPolicy: ["mergeType"] };
const RULES = {
    WasmPlugin: [
        ["/spec", "only one of targetRefs or selector can be set", "(has(self.selector)?1:0)+(has(self.targetRef)?1:0)+(has(self.targetRefs)?1:0)<=1"],
        ["/spec/url", "url must have schema one of [http, https, file, oci]", SCHEMES],
        ["/spec/vmConfig/env/*", ...ENVIRONMENT],
    ],
    TrafficExtension: [
        ["/spec", "only one of targetRefs or selector can be set", "(has(self.selector)?1:0)+(has(self.targetRefs)?1:0)<=1"],
        ["/spec", "exactly one of wasm or lua must be set", "has(self.wasm) != has(self.lua)"],
        ["/spec/wasm/url", "url must have schema one of [http, https, file, oci]", SCHEMES],
        ["/spec/wasm/vmConfig/env/*", ...ENVIRONMENT],
    ],
    EnvoyExtensionPolicy: [
        ["/spec", "either targetRef or targetRefs must be used", "(has(self.targetRef) && !has(self.targetRefs)) || (!has(self.targetRef) && has(self.targetRefs)) || (has(self.targetSelectors) && self.targetSelectors.size() > 0)"],
        ["/spec", "this policy can only have a targetRefs[*].group of gateway.networking.k8s.io", `has(self.targetRefs) ? self.targetRefs.all(ref, ref.group == '${GATEWAY_API}') : true`],
        ["/spec", "this policy can only have a targetRefs[*].kind of Gateway or a route", `has(self.targetRefs) ? self.targetRefs.all(ref, ref.kind in ${ROUTES}) : true`],
        ["/spec", "mergeType can only be used with xRoute targets", `!has(self.mergeType) || !has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ${XROUTES})`],
        ["/spec/mergeType", "must be one of the allowed values", "self in ['StrategicMerge', 'JSONMerge']"],
        ["/spec/wasm/*/code", "If type is HTTP, http field needs to be set.", "self.type == 'HTTP' ? has(self.http) : !has(self.http)"],
        ["/spec/wasm/*/code", "If type is Image, image field needs to be set.", "self.type == 'Image' ? has(self.image) : !has(self.image)"],
        ["/spec/wasm/*/code/image/pullSecretRef", "only support Secret kind.", "self.kind == 'Secret'"],
    ],
    EnvoyProxy: [
        ["/spec/mergeType", "must be one of the allowed values", "self in ['Replace', 'StrategicMerge', 'JSONMerge']"],
        ["/spec/bootstrap", "provided bootstrap patch doesn't match the configured patch type", "self.type == 'JSONPatch' ? self.jsonPatches.size() > 0 : has(self.value)"],
    ],
};

/** The values at a pointer, of which `*` is every entry of a list. */
function at(value, pointer) {
    return pointer.split("/").slice(1).reduce(
        (values, name) => values.flatMap((value) => (name === "*" ? value : [value[name]])).filter((value) => value != null),
        [value],
    );
}

function ruleErrors({ document }) {
    return (RULES[document.kind] ?? []).flatMap(([pointer, message, rule]) =>
        at(document, pointer).every((self) => evaluate(rule, { self })) ? [] : [message],
    );
}

function asWasmPlugin(document) {
    const { wasm, ...spec } = document.spec ?? {};
    return { ...document, kind: "WasmPlugin", spec: { ...spec, ...wasm } };
}

/** Declares `Document`, the TypeScript type of a document. */
function typeOf(name) {
    if (name === TRAFFIC_EXTENSION) {
        const union = (fields) => fields.map((field) => JSON.stringify(field)).join(" | ");
        const spec = `Pick<Spec, ${union(OUTER)}> & { wasm: Pick<Spec, ${union(WASM)}> }`;
        return `import type { IWasmPlugin } from "${MODELS[WASM_PLUGIN]}";
            type Spec = IWasmPlugin["spec"];
            type Document = Omit<IWasmPlugin, "kind" | "spec"> & { kind: "TrafficExtension"; spec: ${spec} };`;
    }
    return `import type { I${name.split(" ")[1]} as Document } from "${MODELS[name]}";`;
}

/** A document without the fields that the package does not know. */
function withoutNewer(document) {
    const known = Object.entries(document.spec ?? {}).filter(([field]) => !NEWER[document.kind].includes(field));
    return { ...document, spec: Object.fromEntries(known) };
}

/** A module that the compiler refuses if the document has an unknown field. */
function asModule({ name, document: whole }) {
    const document = whole.kind in NEWER ? withoutNewer(whole) : whole;
    return `${typeOf(name)}\nexport const document: Document = ${JSON.stringify(document, null, 1)};\n`;
}

async function valueErrors({ name, document }) {
    const model = name === TRAFFIC_EXTENSION ? WASM_PLUGIN : name;
    const file = path.join(packages, `${MODELS[model]}.js`);
    const Model = (await import(pathToFileURL(file)))[model.split(" ")[1]];
    const judged = name === TRAFFIC_EXTENSION ? asWasmPlugin(document) : document;
    try {
        new Model(judged).validate();
        return [];
    } catch (error) {
        return [error.message];
    }
}

const { evaluate } = await import(pathToFileURL(path.join(packages, "@marcbachmann/cel-js/lib/index.js")));
const documents = files.flatMap((file) =>
    YAML.parseAllDocuments(readFileSync(file, "utf8")).map((parsed) => {
        if (parsed.errors.length > 0) {
            throw new Error(`${file}: ${parsed.errors[0].message}`);
        }
        const document = parsed.toJS();
        return { file, document, name: `${document.apiVersion} ${document.kind}` };
    }),
);
const known = documents.filter(({ name }) => name === TRAFFIC_EXTENSION || name in MODELS);
const types = typeErrors(modules, known.map(asModule));
const values = await Promise.all(known.map(valueErrors));
const results = documents.map((entry) => {
    const index = known.indexOf(entry);
    const errors = index < 0 ? [`no schema of ${entry.name}`] : [...values[index], ...types[index], ...ruleErrors(entry)];
    return { file: entry.file, document: entry.document, errors };
});
console.log(JSON.stringify(results));
