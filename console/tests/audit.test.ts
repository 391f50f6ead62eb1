/** Ids in values of the audit log. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { idsIn, isIdField } from "../src/features/audit/values.ts";

test("ids are read from a list, and from the beginning of a longer one", () => {
  assert.deepEqual(idsIn([1, 5]), { shown: ["1", "5"], others: 0 });
  assert.deepEqual(idsIn({ count: 1200, first: ["DEVICE 1000000"] }), { shown: ["DEVICE 1000000"], others: 1199 });
});

test("at most 100 ids of a value are shown", () => {
  const { shown, others } = idsIn({ count: 1000, first: Array.from({ length: 1000 }, (_, id) => id) });
  assert.deepEqual([shown.length, shown.at(-1), others], [100, "99", 900]);
});

test("only lists of ids of other objects are ids", () => {
  assert.deepEqual(["roleIds", "userIds", "menuIds", "resources", "client_id", "allowed_addresses"].filter(isIdField), ["roleIds", "userIds", "menuIds", "resources"]);
});
