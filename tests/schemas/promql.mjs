// Prints the selectors of PromQL expressions, by Prometheus' own grammar:
//
//   node promql.mjs NODE-MODULES < EXPRESSIONS
//
// The input is a JSON array of expressions, the output one of arrays of selectors. An expression with a syntax error ends it.

import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const modules = path.join(path.resolve(process.argv[2]), "node_modules");
const { parser } = await import(pathToFileURL(path.join(modules, "@prometheus-io/lezer-promql/dist/index.es.js")));

function selectors(expression) {
    const found = [];
    parser.parse(expression).iterate({
        enter(node) {
            if (node.type.isError) {
                throw new Error(`${expression}: unexpected ${JSON.stringify(expression.slice(node.from, node.from + 20))} at ${node.from}`);
            }
            if (node.name === "VectorSelector") {
                found.push(expression.slice(node.from, node.to));
            }
        },
    });
    return found;
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(selectors)));
