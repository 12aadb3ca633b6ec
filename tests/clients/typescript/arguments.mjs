// Each method with its default arguments and with each argument in turn, as arguments.json has them.
//
// The arguments come from the client's own types and schemas, so that one that the table does not have is a failure.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The schema inside of those that make a value optional, or change it. */
function bare(schema) {
  const { innerType, getter, schema: changed } = schema._def;
  const inner = innerType ?? getter?.() ?? changed;
  return inner ? bare(inner) : schema;
}

/** The types of all fields of a schema, by name. Those of an object in a field stand under its name. */
function fields(schema) {
  return Object.entries(bare(schema).shape).flatMap(([name, field]) =>
    bare(field).shape ? fields(field).map(([inner, type]) => [`${name}.${inner}`, type]) : [[name, field]],
  );
}

/** The words that a type allows, if it allows no others. */
function words(schema) {
  const { values, options } = bare(schema)._def;
  return values ? Object.values(values) : (options ?? []).flatMap(words);
}

const ANSWERS = {
  links: (answer) => answer.result.map((link) => link.externalId),
  names: (answer) => answer.map((named) => named.name),
  slugs: (answer) => answer.result.map((domain) => domain.slug),
  number: (answer) => answer,
  object: (answer) => answer,
  "first object": (answer) => answer[0],
  clicks: (answer) => [answer].flat().reduce((sum, row) => sum + row.clicks, 0),
  events: (answer) => answer.length,
  image: (answer) => answer,
};

/** An object has the fields that are expected of it; all else is equal. */
function assertLike(answer, expected, what) {
  if (expected === null || typeof expected !== "object" || Array.isArray(expected)) {
    assert.deepEqual(answer, expected, what);
  } else if (expected.matches) {
    assert.match(answer, new RegExp(expected.matches), what);
  } else {
    for (const [name, value] of Object.entries(expected)) assertLike(answer[camel(name)], value, what);
  }
}

/** Checks the methods of a client that is installed in a folder. */
export class Arguments {
  constructor(folder, dub, table) {
    const require = createRequire(path.join(folder, "package.json"));
    this.errors = require("dub/models/errors");
    this.operations = require("dub/models/operations");
    this.types = path.join(path.dirname(require.resolve("dub")), "sdk");
    this.dub = dub;
    this.table = table;
  }

  /** The arguments of a method: name, and its schema if it has fields. */
  parameters(name) {
    const [resource, method] = name.split(".");
    const types = readFileSync(path.join(this.types, `${resource.toLowerCase()}.d.ts`), "utf8");
    const signature = types.match(new RegExp(`^ *${method}\\((.*), options\\?: RequestOptions\\)`, "m"));
    assert.ok(signature, `${name} has no signature`);
    return signature[1].split(", ").map((parameter) => {
      const [, argument, type] = parameter.match(/^(\w+)\??: (.*)$/);
      const [, className] = type.match(/operations\.(\w+)/) ?? [];
      const schema = className && this.operations[`${className}$outboundSchema`];
      assert.equal(Boolean(schema), Boolean(className), `${className} has no schema`);
      return { argument, schema, isList: type.startsWith("Array<") };
    });
  }

  call(name, given) {
    const [resource, method] = name.split(".");
    const values = this.parameters(name).map(({ argument, schema, isList }) => {
      if (!schema) return given[argument];
      const names = Object.keys(bare(schema).shape);
      const value = Object.fromEntries(names.filter((field) => field in given).map((field) => [field, given[field]]));
      return isList ? [value] : value;
    });
    return this.dub[resource][method](...values);
  }

  /** A value of the table under the client's names, with what stands for ids replaced by them. */
  filled(value) {
    if (Array.isArray(value)) return value.map((inner) => this.filled(inner));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [camel(name), this.filled(inner)]));
    }
    return typeof value === "string" ? value.replace(/\{([a-z]\w+)\}/g, (_, name) => this.known[name]) : value;
  }

  async checkEverything() {
    const link = await this.call("links.get", { externalId: "ext_clicked" });
    const plain = await this.call("links.get", { externalId: "ext_plain" });
    const { domain, id, tagId, folderId } = link;
    this.known = { domain, id, tagId, folderId, plainId: plain.id };
    const served = new Set(Object.keys(this.table.methods).map((name) => name.split(".")[0]));
    const resources = Object.entries(Object.getOwnPropertyDescriptors(Object.getPrototypeOf(this.dub)));
    const offered = resources.filter(([, member]) => member.get).map(([name]) => name);
    const unknown = offered.filter((name) => !served.has(name) && !(name in this.table.notServed));
    assert.deepEqual(unknown, [], "not in the table");
    for (const resource of served) {
      const members = Object.getOwnPropertyNames(Object.getPrototypeOf(this.dub[resource]));
      const methods = members.filter((name) => name !== "constructor").map((name) => `${resource}.${name}`);
      const known = [...Object.keys(this.table.methods), ...Object.keys(this.table.notServed)];
      assert.deepEqual(methods.filter((name) => !known.includes(name)), [], "not in the table");
    }
    for (const [name, method] of Object.entries(this.table.methods)) await this.checkMethod(name, method);
  }

  async checkMethod(name, method) {
    const cases = new Map();
    const isOurs = ({ only = "typescript" }) => only === "typescript";
    for (const [prefix, groups] of [["", method.takes], ...Object.entries(method.takesIn ?? {})]) {
      for (const [argument, rows] of groups.flatMap((group) => Object.entries(this.table.groups[group]))) {
        if (!isOurs({ only: this.table.only[argument] })) continue;
        const at = (prefix && `${prefix}.`) + camel(argument);
        cases.set(at, [...(cases.get(at) ?? []), ...rows.filter(isOurs)]);
      }
    }
    const offered = this.parameters(name).flatMap(({ argument, schema }) => (schema ? fields(schema) : [[argument, null]]));
    assert.deepEqual(offered.map(([argument]) => argument).sort(), [...cases.keys()].sort(), name);
    for (const [argument, type] of offered) {
      const given = cases.get(argument).map((row) => row.give);
      assert.notEqual(given.length, 0, `${name}: ${argument} is never given`);
      const missing = type ? words(type).filter((word) => !given.includes(word)) : [];
      assert.deepEqual(missing, [], `${name}: ${argument}: not in the table`);
    }
    assert.ok("default" in method, `${name} has no default`);
    const usual = method.default?.refuse ? method.default : { get: method.default };
    await this.check(name, method, "", usual);
    for (const [argument, rows] of cases) for (const row of rows) await this.check(name, method, argument, row);
  }

  /** The answer of a call, or the code and the message of its refusal. */
  async outcome(name, answers, given) {
    try {
      const answer = ANSWERS[answers](await this.call(name, given));
      return answer?.error ? { refusal: { code: answer.code, message: answer.error } } : { answer };
    } catch (error) {
      if (error instanceof this.errors.ResponseValidationError) return { answer: { unreadable: JSON.parse(error.body) } };
      if (!error.data$?.error) throw error;
      return { refusal: error.data$.error };
    }
  }

  async check(name, method, argument, row) {
    for (const [known, resource, request] of [
      ["newId", "links", { url: "https://example.com/fresh" }],
      ["newTagId", "tags", { name: "fresh" }],
      ["newFolderId", "folders", { name: "fresh" }],
    ]) {
      if (JSON.stringify([method.needs, row]).includes(`{${known}}`)) {
        this.known[known] = (await this.call(`${resource}.create`, request)).id;
      }
    }
    const given = this.filled({ ...method.needs, ...row.with });
    if (row.without) delete given[row.without];
    const places = argument.split(".");
    const last = places.pop();
    const inner = places.reduce((object, place) => object[place], given);
    if (argument) inner[last] = this.filled(row.give);
    const what = JSON.stringify([name, argument, row]);
    let { answer, refusal } = await this.outcome(name, method.answers, given);
    if (refusal || row.refuse) {
      const [code, message] = row.refuse ?? ["no refusal", ""];
      assert.equal(refusal?.code, code, `${what}: ${refusal?.message}`);
      assert.ok(refusal.message.includes(message), `${what}: ${refusal.message}`);
    } else if (row.unreadable) {
      // The client has no type for the answer, and reports it as it came.
      assert.deepEqual(answer, { unreadable: JSON.parse(this.filled(JSON.stringify(row.unreadable))) }, what);
    } else {
      let expected = this.filled(row.get === undefined ? { [last]: row.give } : row.get);
      if (method.answers === "number" && Array.isArray(expected)) expected = expected.length;
      if (method.answers === "image") {
        const usual = await this.outcome(name, "image", this.filled(method.needs));
        assert.equal(answer.slice(1, 4), "PNG", what);
        answer = answer === usual.answer ? "the same image" : "another image";
      }
      assertLike(answer, expected, what);
    }
    await this.cleanUp();
  }

  /** Deletes the links, tags and folders that a call has made. */
  async cleanUp() {
    for (const resource of ["tags", "folders"]) {
      const kept = this.table[resource].map((row) => row.name);
      for (const made of await this.call(`${resource}.list`, {})) {
        if (!kept.includes(made.name)) await this.call(`${resource}.delete`, { id: made.id });
      }
    }
    const links = (await this.call("links.list", { showArchived: true })).result;
    const made = links.filter((link) => !["clicked", "plain", "archived"].includes(link.externalId));
    if (made.length > 0) await this.call("links.deleteMany", { linkIds: made.map((link) => link.id) });
  }
}
