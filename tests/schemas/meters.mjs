// Prints what is wrong with meters and events for OpenMeter, and with parameters for Stripe, by their own types:
//
//   node meters.mjs NODE-MODULES < INPUT
//
// The input is {"meters": [...], "events": [...], "stripe": [...]}; the output has a list of errors for each of their elements.

import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { typeErrors } from "./compiler.mjs";

const modules = process.argv[2];
const openmeter = path.join(path.resolve(modules), "node_modules/@openmeter/sdk/dist/src/zod/index.js");
const { CreateMeterBody, IngestEventsBody } = await import(pathToFileURL(openmeter));

// Fields that the schema does not have are errors, too.
const errors = (schema) => (value) => {
    const { success, error } = schema.strict().safeParse(value);
    return success ? [] : error.issues.map(({ path: at, message }) => `${at.join(".")}: ${message}`);
};
const typed = (parameters) => `
import type { Stripe } from "stripe";
export const parameters: Stripe.Billing.MeterEventCreateParams = ${JSON.stringify(parameters)};
`;
const { meters, events, stripe } = JSON.parse(readFileSync(0, "utf8"));
console.log(
    JSON.stringify({
        meters: meters.map(errors(CreateMeterBody)),
        events: events.map(errors(IngestEventsBody)),
        stripe: typeErrors(modules, stripe.map(typed)),
    }),
);
