/** Reasons of the API in the Chinese console. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { translateReason } from "../src/i18n/reasons.ts";

test("a reason is translated with its values, and an unknown one stays English", () => {
  assert.equal(translateReason("must have at most 255 characters"), "最多 255 个字符");
  assert.equal(translateReason("must be one of `heat`, `cool`. Got `warm`"), "必须是以下之一：`heat`, `cool`。当前值：`warm`");
  assert.equal(translateReason("properties.interval: is not known"), "properties.interval：未定义");
  assert.equal(translateReason("mode: the codec failed"), "mode: the codec failed");
});
