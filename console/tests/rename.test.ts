// Renaming in the editor of a product keeps the specification whole.
import assert from "node:assert/strict";
import { test } from "node:test";

import { renameMembers, renameProperty, withoutMember, withoutMembersOf } from "../src/features/products/document.ts";

const ids = (entries: { id?: string }[]) => entries.map((one) => one.id);
const DOCUMENT = {
  version: "v1.0",
  properties: [
    { id: "plan", propertyKey: "plan", accessMode: "RW" as const, dataSpec: { dataType: "STRUCT" as const } },
    { id: "plan.times", propertyKey: "plan.times", dataSpec: { dataType: "STRUCT" as const, parentId: "plan" } },
    { id: "plan.times.begin", dataSpec: { dataType: "LONG" as const, parentId: "plan.times" } },
    { id: "planned", dataSpec: { dataType: "BOOL" as const } },
  ],
  events: [{ id: "late", outputs: [{ id: "late.begin", ref: "plan.times.begin", dataSpec: { dataType: "LONG" as const, parentId: "late" } }, { id: "late.planned", ref: "planned" }] }],
  services: [{ id: "skip", inputs: [{ id: "skip.plan", dataSpec: { dataType: "STRUCT" as const, parentId: "skip", ref: "plan" } }], outputs: [] }],
};

test("members of a renamed STRUCT follow it at every depth, and others stay", () => {
  const { properties } = renameProperty(DOCUMENT, "plan", "schedule");
  assert.deepEqual(ids(properties!), ["schedule", "schedule.times", "schedule.times.begin", "planned"]);
  assert.deepEqual(properties!.map((one) => one.propertyKey), ["schedule", "schedule.times", undefined, undefined]);
  assert.deepEqual(properties!.map((one) => one.dataSpec?.parentId), [undefined, "schedule", "schedule.times", undefined]);
});

test("parameters of events and services refer to the renamed property", () => {
  const { events, services } = renameProperty(DOCUMENT, "plan", "schedule");
  assert.deepEqual(events![0]!.outputs!.map((one) => one.ref), ["schedule.times.begin", "planned"]);
  assert.equal(services![0]!.inputs![0]!.dataSpec!.ref, "schedule");
  assert.equal(services![0]!.inputs![0]!.dataSpec!.parentId, "skip");
});

test("a property key of its own stays when the id changes", () => {
  const [entry] = renameMembers([{ id: "a", propertyKey: "key" }], "a", "b");
  assert.deepEqual(entry, { id: "b", propertyKey: "key" });
});

test("parameters follow a renamed service, also those inside of a STRUCT", () => {
  const inputs = [
    { id: "set.plan", dataSpec: { dataType: "STRUCT" as const, parentId: "set" } },
    { id: "set.plan.begin", dataSpec: { dataType: "LONG" as const, parentId: "set.plan" } },
  ];
  const renamed = renameMembers(inputs, "set", "put");
  assert.deepEqual(ids(renamed), ["put.plan", "put.plan.begin"]);
  assert.deepEqual(renamed.map((one) => one.dataSpec.parentId), ["put", "put.plan"]);
});

test("a member that is moved out of its STRUCT has no parent", () => {
  const [, moved] = renameMembers(DOCUMENT.properties, "plan.times", "times");
  assert.deepEqual([moved!.id, moved!.dataSpec!.parentId], ["times", undefined]);
});

test("members of a member are renamed with it", () => {
  assert.deepEqual(ids(withoutMember(DOCUMENT.properties, "plan")), ["planned"]);
  assert.deepEqual(ids(withoutMembersOf(DOCUMENT.properties, "plan.times")), ["plan", "plan.times", "planned"]);
});
