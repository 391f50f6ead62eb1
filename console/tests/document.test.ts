import assert from "node:assert/strict";
import { test } from "node:test";

import { withoutRepeatedKeys } from "../src/features/products/document.ts";
import { tree } from "../src/features/tsl/tree.ts";

const PROPERTIES = [
  { id: "cfg", propertyKey: "config", accessMode: "RW", dataSpec: { dataType: "STRUCT" } },
  { id: "cfg.iv", propertyKey: "config.interval", accessMode: "RW", dataSpec: { dataType: "INT" } },
  { id: "cfg.mode", propertyKey: "config.mode", accessMode: "RW", dataSpec: { dataType: "INT" } },
  { id: "battery", propertyKey: "battery", accessMode: "R", dataSpec: { dataType: "INT" } },
];

test("people edit property keys only where they differ from ids", () => {
  const edited = withoutRepeatedKeys({ version: "v1.0", properties: PROPERTIES, events: [], services: [] });
  assert.deepEqual(
    edited.properties?.map((one) => [one.id, one.propertyKey]),
    [
      ["cfg", "config"],
      ["cfg.iv", "interval"],
      ["cfg.mode", undefined],
      ["battery", undefined],
    ],
  );
});

test("forms name values by their property keys", () => {
  const [config, battery] = tree(PROPERTIES);
  assert.deepEqual([config?.key, config?.members.map((one) => one.key), battery?.id], ["config", ["interval", "mode"], "battery"]);
});
