import assert from "node:assert/strict";
import { test } from "node:test";

import { exchangeOf, inputsOf } from "../src/features/dashboards/commands.ts";
import { appendChanges, pointsOf, fractionOfRange } from "../src/features/dashboards/series.ts";

const row = (entity_id: string, timestamp: number, value: unknown) => ({ id: "", entity_id, timestamp, value, value_type: "DOUBLE" as const });

test("rows in any order become points of each entity, and texts are skipped", () => {
  const found = pointsOf([row("a", 3, 1.5), row("b", 2, true), row("a", 1, "2"), row("a", 2, "x"), row("c", 1, 1)], ["a", "b"]);
  assert.deepEqual(found.get("a"), { times: [1, 3], values: [2, 1.5] });
  assert.deepEqual(found.get("b"), { times: [2], values: [1] });
  assert.equal(found.size, 2);
});

test("newer values come behind, and those that are too old go", () => {
  const points = { times: [1, 2, 3], values: [10, 20, 30] };
  const at = (timestamp: number, value: unknown) => ({ timestamp, value });
  assert.deepEqual(appendChanges(points, [at(4, 40), at(4, 41), at(5, 50)], 2), { times: [2, 3, 4, 5], values: [20, 30, 40, 50] });
  assert.equal(appendChanges(points, [at(3, 40), at(9, null)], 0), points);
  assert.deepEqual(appendChanges(points, [at(9, 50)], 8), { times: [9], values: [50] });
});

test("a share is between nothing and all", () => {
  assert.deepEqual([fractionOfRange(50, 0, 200), fractionOfRange(-1, 0, 10), fractionOfRange(11, 0, 10), fractionOfRange("x", 0, 10), fractionOfRange(1, 5, 5)], [0.25, 0, 1, 0, 0]);
});

test("a command sends a value, or the inputs of its service by their keys", () => {
  assert.deepEqual(exchangeOf("d.led", "true"), { "d.led": true });
  assert.deepEqual(exchangeOf("d.label", "on air"), { "d.label": "on air" });
  assert.deepEqual(exchangeOf("d.measure", '{"times": 3, "d.measure.mode": "x"}'), { "d.measure.times": 3, "d.measure.mode": "x" });
});

test("inputs are read as their types have it", () => {
  const child = (entity_value_type: string, attribute = {}) => ({ entity_key: "k", entity_name: "K", entity_value_type, entity_value_attribute: attribute });
  const service = { ...child("OBJECT"), entity_type: "SERVICE" };
  const [count, flag, mode] = inputsOf("s", service, [child("LONG"), child("BOOLEAN", { optional: true }), child("STRING", { enum: { a: "A" } })], { true: "On", false: "Off" });
  assert.deepEqual([count!.read("3"), count!.read("x"), count!.required], [3, "x", true]);
  assert.deepEqual([flag!.read("true"), flag!.required], [true, false]);
  assert.deepEqual(flag!.options, [["true", "On"], ["false", "Off"]]);
  assert.deepEqual(mode!.options, [["a", "A"]]);
});
