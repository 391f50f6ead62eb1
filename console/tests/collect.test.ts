// All rows of a list are selected, or none.
import assert from "node:assert/strict";
import { test } from "node:test";

import { collectRows, PAGE } from "../src/lib/collect.ts";

const TOTAL = 2 * PAGE + 200;
const row = (at: number) => ({ id: String(at) });
const page = (at: number, size: number) => ({ content: Array.from({ length: Math.max(0, Math.min(size, TOTAL - (at - 1) * size)) }, (_, index) => row((at - 1) * size + index)) });
const never = { most: 10_000, isCancelled: () => false, onprogress: () => {} };

test("rows of all pages are collected, each once", async () => {
  const overlapping = async (at: number, size: number) => ({ content: [...page(at, size).content.slice(0, size - 1), row(0)].slice(0, page(at, size).content.length) });
  const counts: number[] = [];
  const found = await collectRows(async (at, size) => page(at, size), { ...never, onprogress: (count) => counts.push(count) });
  assert.equal(found?.length, TOTAL);
  assert.deepEqual(counts, [PAGE, 2 * PAGE, TOTAL]);
  const twice = await collectRows(overlapping, never);
  assert.equal(new Set(twice!.map((one) => one.id)).size, twice!.length);
});

test("a change of the filters leaves nothing selected", async () => {
  let loads = 0;
  const found = await collectRows(async (at, size) => ((loads += 1), page(at, size)), { ...never, isCancelled: () => loads === 2 });
  assert.equal(found, null);
  assert.equal(loads, 2);
});

test("collecting stops at the most that an action takes", async () => {
  const found = await collectRows(async (at, size) => page(at, size), { ...never, most: PAGE + 1 });
  assert.equal(found?.length, PAGE + 1);
});

test("a page that fails leaves nothing selected", async () => {
  const load = async (at: number, size: number) => {
    if (at === 2) throw new Error("away");
    return page(at, size);
  };
  await assert.rejects(collectRows(load, never));
});
