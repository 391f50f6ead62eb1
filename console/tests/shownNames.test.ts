/** Searches by names that the console translates. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { names } from "../src/features/integrations/entities.zh.ts";
import { appendRows, storedNames } from "../src/lib/shownNames.ts";

test("a part of a translated name finds the stored name", () => {
  assert.deepEqual(storedNames(names, "已接受"), ["Accepted uplinks"]);
  assert.deepEqual(storedNames(names, "mqtt"), ["Broker"]);
  assert.deepEqual(storedNames({ operator: "Operator of the platform" }, "OPERATOR OF"), ["operator"]);
});

test("names that the platform finds itself, and names without translation, are left out", () => {
  assert.deepEqual(storedNames(names, "webhook"), []);
  assert.deepEqual(storedNames(names, ""), []);
  assert.deepEqual(storedNames(names, "温度"), []);
});

test("appended rows follow the last row of a list, each on one page", () => {
  const page = (page_number: number, total: number) => {
    const all = Array.from({ length: total }, (_, index) => `${index}`);
    return appendRows({ page_size: 3, page_number, total, content: all.slice((page_number - 1) * 3, page_number * 3) }, ["a", "b", "c"]);
  };
  assert.deepEqual(page(1, 0).content, ["a", "b", "c"]);
  assert.deepEqual(page(1, 4).content, ["0", "1", "2"]);
  assert.deepEqual(page(2, 4).content, ["3", "a", "b"]);
  assert.deepEqual(page(3, 4), { page_size: 3, page_number: 3, total: 7, content: ["c"] });
  assert.deepEqual(page(2, 3).content, ["a", "b", "c"]);
});
