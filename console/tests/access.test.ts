import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { allows, PAGES } from "../src/access.ts";

const routes = [...readFileSync(new URL("../src/routes.ts", import.meta.url), "utf8").matchAll(/^ {2}"(\/[^"]*)": /gm)].map(([, route]) => route!);
const menu = [...readFileSync(new URL("../src/nav.ts", import.meta.url), "utf8").matchAll(/path: "([^"]+)"/g)].map(([, path]) => path!);
const holder = (...codes: string[]) => (code: string) => codes.includes(code);

test("every route has a row in the table, and every row a route", () => {
  assert.deepEqual(routes.toSorted(), Object.keys(PAGES).toSorted());
});

test("every entry of the menu leads to a route", () => {
  assert.ok(menu.length > 15);
  assert.deepEqual(menu.filter((path) => !routes.includes(path)), []);
});

test("a user who may only view devices opens no page of administration and none that adds", () => {
  const may = holder("device.view", "dashboard.view");
  for (const route of ["/people/users", "/people/roles/:id", "/audit", "/settings", "/applications", "/connect", "/flows/new", "/products/new", "/fleet/imports/:id"]) assert.equal(allows(route, may), false, route);
  for (const route of ["/", "/account", "/devices/:id", "/dashboards/:id", "/alarms"]) assert.equal(allows(route, may), true, route);
});

test("a route that the table does not know is closed", () => {
  assert.equal(allows("/secret", holder("device.view")), false);
});
