import assert from "node:assert/strict";
import { test } from "node:test";

import { trackLatest } from "../src/lib/trackLatest.ts";

test("an earlier request is no longer the latest, in any order of answers", () => {
  const begin = trackLatest();
  const first = begin();
  assert.ok(first());
  const second = begin();
  assert.deepEqual([first(), second()], [false, true]);
});
