// Every call that the published client offers for the resources that the API has, with every argument:
// node every_call.mjs FOLDER URL KEY CLICKS ARGUMENTS
//
// FOLDER has the installed client. CLICKS is clicks.json: clicks that the caller has made on the link `ext_clicked`, and
// the answers about them. ARGUMENTS is arguments.json: links that the caller has made, and what each argument of each
// call does.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { Arguments } from "./arguments.mjs";

const [folder, serverURL, token, clicksFile, argumentsFile] = process.argv.slice(2);
const require = createRequire(path.join(folder, "package.json"));
const { Dub } = require("dub");
const errors = require("dub/models/errors");
const operations = require("dub/models/operations");

/** A resource of the client that knows which of its calls were not made yet. */
function calls(resource) {
  const names = Object.getOwnPropertyNames(Object.getPrototypeOf(resource));
  const unmade = new Set(names.filter((name) => name !== "constructor"));
  const made = new Proxy(resource, {
    get(target, name) {
      unmade.delete(name);
      return target[name].bind(target);
    },
  });
  return { made, unmade };
}

async function refused(Kind, code, call) {
  await assert.rejects(call, (refusal) => {
    assert.ok(refusal instanceof Kind, String(refusal));
    assert.equal(refusal.data$.error.code, code);
    return true;
  });
}

/** Each parsed value has the fields of the expected one. */
function assertLike(parsed, expected, what) {
  const shown = parsed.map((value, index) =>
    Object.fromEntries(Object.keys(expected[index] ?? value).map((name) => [name, value[name]])),
  );
  assert.deepEqual(shown, expected, what);
}

const ids = (links) => links.map((link) => link.id);

/** Leaves a tag of that name for the links. */
async function tags(tags, name) {
  const tag = await tags.create({ name, color: "blue" });
  assert.deepEqual([tag.name, tag.color], [name, "blue"]);
  const other = await tags.create({ tag: `${name}-2` });
  await refused(errors.Conflict, "conflict", () => tags.create({ name: name.toUpperCase() }));
  await refused(errors.UnprocessableEntity, "unprocessable_entity", () => tags.create({ name: "" }));

  const updated = await tags.update(other.id, { name: `${name}-3`, color: "pink" });
  assert.deepEqual(updated, { id: other.id, name: `${name}-3`, color: "pink" });
  assert.deepEqual(await tags.list({ search: name }), [tag, updated]);
  const newest = { search: name, sortBy: "createdAt", sortOrder: "desc", page: 1, pageSize: 1 };
  assert.deepEqual(await tags.list(newest), [updated]);
  assert.deepEqual(await tags.list({ ids: [tag.id, "tag_nobody"] }), [tag]);

  assert.equal((await tags.delete(other.id)).id, other.id);
  await refused(errors.NotFound, "not_found", () => tags.update(other.id, { name: "x" }));
  await refused(errors.NotFound, "not_found", () => tags.delete(other.id));
}

async function folders(folders, name) {
  const folder = await folders.create({ name, description: "d" });
  assert.deepEqual(
    [folder.name, folder.description, folder.type, folder.accessLevel],
    [name, "d", "default", "write"],
  );
  await refused(errors.Conflict, "conflict", () => folders.create({ name: name.toUpperCase() }));
  await refused(errors.UnprocessableEntity, "unprocessable_entity", () =>
    folders.create({ name: "x", accessLevel: "read" }),
  );

  const updated = await folders.update(folder.id, { name: `${name}-2`, description: null, accessLevel: "write" });
  assert.deepEqual([updated.id, updated.name, updated.description], [folder.id, `${name}-2`, null]);
  assert.deepEqual(await folders.list({ search: name, page: 1, pageSize: 1 }), [updated]);

  assert.equal((await folders.delete(folder.id)).id, folder.id);
  await refused(errors.NotFound, "not_found", () => folders.update(folder.id, { name: "x" }));
  await refused(errors.NotFound, "not_found", () => folders.delete(folder.id));
}

async function domains(domains, host) {
  const listed = [];
  for await (const page of await domains.list({ archived: false, search: host, pageSize: 1 })) {
    listed.push(...page.result);
  }
  assert.deepEqual(
    listed.map((domain) => [domain.slug, domain.primary, domain.verified, domain.archived, domain.registeredDomain]),
    [[host, true, true, false, null]],
  );
  // Domains are named on the command line.
  await refused(errors.NotFound, "not_found", () => domains.update(host, { archived: true }));
  await refused(errors.NotFound, "not_found", () => domains.delete(host));
  await refused(errors.NotFound, "not_found", () => domains.register({ domain: "go.link" }));
  await refused(errors.NotFound, "not_found", () => domains.checkStatus({ domains: "go.link" }));
  await assert.rejects(domains.create({ slug: "go.test" }), { statusCode: 405 });
}

/** What the service does not have is told so in the published form. */
async function absent(dub) {
  const lead = { clickId: "c", eventName: "e", customerExternalId: "x" };
  for (const call of [
    () => dub.track.lead(lead),
    () => dub.track.sale({ customerExternalId: "x", amount: 1 }),
    ...[dub.customers, dub.partners, dub.commissions, dub.payouts].map((resource) => () => resource.list({})),
  ]) {
    await refused(errors.NotFound, "not_found", call);
  }
}

async function links(links, name) {
  const before = await links.count();
  const withArchived = await links.count({ showArchived: true });
  const externalId = `${name}/1`;
  const link = await links.create({
    url: "https://example.com/pricing?x=1", key: name, externalId, tenantId: name, title: "Prices", comments: "c",
    tagNames: [name], geo: { DE: "https://example.com/de" }, expiresAt: "2030-01-01T00:00:00Z",
    utmCampaign: "spring", ios: "https://example.com/ios",
  });
  assert.deepEqual([link.key, link.externalId, link.tenantId, link.title], [name, externalId, name, "Prices"]);
  assert.equal(link.url, "https://example.com/pricing?x=1&utm_campaign=spring");
  assert.deepEqual(
    [link.utmCampaign, link.expiresAt, link.clicks, link.archived],
    ["spring", "2030-01-01T00:00:00.000Z", 0, false],
  );
  assert.deepEqual([link.tags.map((tag) => tag.name), link.geo.DE], [[name], "https://example.com/de"]);
  assert.equal(link.shortLink, `http://${link.domain}/r/${name}`);

  for (const request of [{ linkId: link.id }, { externalId: `ext_${externalId}` }, { domain: link.domain, key: name }]) {
    assert.deepEqual(await links.get(request), link);
  }
  await refused(errors.NotFound, "not_found", () => links.get({ linkId: "link_nobody" }));
  await refused(errors.Conflict, "conflict", () => links.create({ url: "https://example.com", key: name }));
  for (const wrong of [
    { url: "nonsense" },
    { url: "https://example.com", tagNames: ["nobody"] },
    { url: "https://example.com", folderId: "fold_nobody" },
  ]) {
    await refused(errors.UnprocessableEntity, "unprocessable_entity", () => links.create(wrong));
  }

  const updated = await links.update(`ext_${externalId}`, { url: "https://example.com/new", archived: true });
  assert.deepEqual([updated.id, updated.url, updated.archived], [link.id, "https://example.com/new", true]);
  assert.equal((await links.update(link.id, { title: null })).title, null);

  const same = await links.upsert({ url: "https://example.com/new", title: "New" });
  assert.deepEqual([same.id, same.title], [link.id, "New"]);
  const other = await links.upsert({ url: `https://example.com/${name}/upserted` });
  assert.notEqual(other.id, link.id);

  const urls = [0, 1, 2, 3, 4].map((n) => `https://example.com/${name}/${n}`);
  const many = await links.createMany([
    ...urls.map((url, n) => ({ url, externalId: `${name}-${n}` })),
    { url: "https://example.com", key: name },
  ]);
  const made = many.slice(0, 5);
  assert.deepEqual(made.map((item) => item.url), urls);
  assert.equal(many[5].code, "conflict");

  const listed = [];
  for await (const page of await links.list({ search: `${name}/`, pageSize: 2 })) {
    assert.ok(page.result.length <= 2);
    listed.push(...page.result);
  }
  assert.deepEqual(ids(listed), ids([other, ...made]).reverse());
  assert.deepEqual(ids((await links.list({ tagNames: [name], showArchived: true })).result), [link.id]);
  assert.equal(await links.count({}), before + 6, "archived links are not counted");
  assert.equal(await links.count({ tenantId: name, showArchived: true }), 1);

  const byId = await links.updateMany({ linkIds: [made[1].id, made[0].id], data: { comments: "both" } });
  assert.deepEqual(byId.map((item) => [item.id, item.comments]), [[made[1].id, "both"], [made[0].id, "both"]]);
  const byExternal = await links.updateMany({ externalIds: [`${name}-2`, "nobody"], data: { archived: true } });
  assert.deepEqual(byExternal.map((item) => [item.id, item.archived]), [[made[2].id, true]]);

  assert.equal((await links.delete(`ext_${name}-0`)).id, made[0].id);
  const rest = ids([link, other, ...made.slice(1)]);
  assert.equal((await links.deleteMany({ linkIds: [...rest, "link_nobody"] })).deletedCount, 6);
  await refused(errors.NotFound, "not_found", () => links.delete(link.id));
  assert.equal(await links.count({ showArchived: true }), withArchived);
}

async function analytics(analytics, table) {
  const clicked = { externalId: "ext_clicked" };
  const covered = new Set([...Object.keys(table.answers), ...table.notParsed, "timeseries"]);
  const offered = Object.values(operations.QueryParamGroupBy);
  assert.deepEqual(offered.filter((groupBy) => !covered.has(groupBy)), [], "a grouping is not covered");
  for (const [groupBy, expected] of Object.entries(table.answers)) {
    if (!offered.includes(groupBy)) continue;
    const answer = await analytics.retrieve({ ...clicked, groupBy });
    assertLike([answer].flat(), [expected].flat(), groupBy);
  }
  assert.equal((await analytics.retrieve()).clicks, 3);
  const series = await analytics.retrieve({ ...clicked, groupBy: "timeseries" });
  assert.equal(series.length, 25);
  assert.deepEqual(series.slice(-4).map((point) => point.clicks), [0, 1, 2, 0]);
  const top = await analytics.retrieve({ groupBy: "top_links", start: "90 minutes ago", end: "now" });
  assert.deepEqual(top.map((link) => [link.key, link.clicks]), [["clicked", 2]]);
  for (const interval of Object.values(operations.Interval)) {
    assert.equal((await analytics.retrieve({ ...clicked, interval })).clicks, 3, interval);
  }
  assert.equal((await analytics.retrieve({ country: "-DE", timezone: "Asia/Kolkata" })).clicks, 2);
  await refused(errors.UnprocessableEntity, "unprocessable_entity", () => analytics.retrieve({ start: "yonder" }));
}

async function events(events, table) {
  const listed = await events.list();
  assertLike(listed, table.events, "events");
  assert.deepEqual(listed.map((event) => event.link.externalId), ["clicked", "clicked", "clicked"]);
  assert.deepEqual(
    [listed[0].click.qr, listed[0].click.trigger, listed[1].click.referer],
    [true, "qr", "t.co"],
  );
  const oldestFirst = await events.list({ sortOrder: "asc", limit: 2, page: 2 });
  assert.deepEqual(oldestFirst.map((event) => event.clickId), [listed[0].clickId]);
  const some = await events.list({ country: "US,DE", start: "24 hours ago" });
  assert.deepEqual(some.map((event) => event.country), ["US", "DE"]);
}

async function qrCodes(codes, url) {
  assert.equal((await codes.get({ url })).slice(1, 4), "PNG");
  assert.equal((await codes.get({ url, size: 203, margin: 0, includeMargin: false })).slice(1, 4), "PNG");
  await refused(errors.UnprocessableEntity, "unprocessable_entity", () => codes.get({ url, size: 20 }));
}

const table = JSON.parse(readFileSync(clicksFile, "utf8"));
const dub = new Dub({ token, serverURL });
for (const [story, resource, argument] of [
  [tags, dub.tags, "node"],
  [folders, dub.folders, "node"],
  [domains, dub.domains, "links.example.test"],
  [links, dub.links, "node"],
  [analytics, dub.analytics, table],
  [events, dub.events, table],
  [qrCodes, dub.qrCodes, "https://example.com/"],
]) {
  const { made, unmade } = calls(resource);
  await story(made, argument);
  assert.deepEqual([...unmade], [], `${resource.constructor.name}: not called`);
}
await absent(dub);
const argumentsTable = JSON.parse(readFileSync(argumentsFile, "utf8"));
await new Arguments(folder, dub, argumentsTable).checkEverything();
