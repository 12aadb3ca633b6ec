// Prints what is wrong with each of several Grafana dashboards, by Grafana's own types, as a JSON array of arrays:
//
//   node dashboard.mjs NODE-MODULES DASHBOARD.json...

import { readFileSync } from "node:fs";

import { typeErrors } from "./compiler.mjs";

const [modules, ...files] = process.argv.slice(2);

// A panel's kind decides what its options and its fields' `custom` are; its queries are Prometheus'.
// Kinds of panels with options for each field.
const CUSTOM = ["timeseries", "table"];
const panel = (kind) => `Json<Omit<Panel, "type" | "options" | "fieldConfig" | "targets">> & {
    type: "${kind}";
    options?: Partial<Json<${kind}.Options>>;
    fieldConfig: { defaults: Json<Omit<FieldConfig, "custom">> & { ${CUSTOM.includes(kind) ? `custom?: Partial<Json<${kind}.FieldConfig>>` : ""} }; overrides: [] };
    targets: Json<Omit<prometheus.dataquery, "_implementsDataqueryVariant" | "_implementsPanelCfg">>[];
}`;

// The dashboard as a value of Grafana's types, in TypeScript.
function typed(dashboard) {
    const kinds = [...new Set(dashboard.panels.map(({ type }) => type))].filter((kind) => kind !== "row");
    return `
import type { Dashboard, FieldConfig, Panel, RowPanel } from "@grafana/grafana-foundation-sdk/dashboard";
import type * as prometheus from "@grafana/grafana-foundation-sdk/prometheus";
${kinds.map((kind) => `import type * as ${kind} from "@grafana/grafana-foundation-sdk/${kind}";`).join("\n")}

// What an enumeration of TypeScript is in JSON.
type Json<T> = T extends string ? \`\${T}\` : T extends (infer U)[] ? Json<U>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type Panels = Json<RowPanel> | ${kinds.map(panel).join(" | ")};
export const dashboard: Json<Omit<Dashboard, "panels">> = ${JSON.stringify({ ...dashboard, panels: undefined }, null, 1)};
export const panels: Panels[] = ${JSON.stringify(dashboard.panels, null, 1)};
`;
}

const dashboards = files.map((file) => JSON.parse(readFileSync(file, "utf8")));
console.log(JSON.stringify(typeErrors(modules, dashboards.map(typed))));
