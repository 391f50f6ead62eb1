import assert from "node:assert/strict";
import { test } from "node:test";

import { turns } from "../src/lib/turns.ts";

test("what was asked first is not the newest any more, whichever is answered first", () => {
  const begin = turns();
  const first = begin();
  assert.ok(first());
  const second = begin();
  assert.deepEqual([first(), second()], [false, true]);
});
