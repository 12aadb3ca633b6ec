// Judges JSON documents by a JSON Schema:
//
//   node judge.mjs NODE-MODULES SCHEMA <DOCUMENTS
//
// Standard input is a JSON array of documents. The output is a JSON array of the same length: for each document its errors.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, schema] = process.argv.slice(2);
const packages = createRequire(path.join(path.resolve(modules), "node_modules", "index.js"));
const { Ajv2020 } = packages("ajv/dist/2020.js");

const validate = new Ajv2020({ strictTypes: false, strictRequired: false }).compile(JSON.parse(readFileSync(schema, "utf8")));
const errors = (document) => (validate(document) ? [] : validate.errors.map((error) => `${error.instancePath}: ${error.message}`));
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(errors)));
