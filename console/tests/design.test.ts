import assert from "node:assert/strict";
import { test } from "node:test";

import { nodesBefore, componentOf, withEdge, freeBranch, handlesOf, mayConnect, withPlaces, newId, NotADesign, readDesign, withData, withNode, withoutNodes, writeDesign } from "../src/features/flows/design.ts";
import { differences } from "../src/features/flows/diff.ts";
import { startHistory, addState, redo, undo } from "../src/features/flows/history.ts";
import { placeMissing } from "../src/features/flows/layout.ts";
import { keyOf, outputsOf, reference, sampleInput } from "../src/features/flows/references.ts";
import { asText, asValue } from "../src/features/flows/values.ts";

/** As an existing editor writes it. */
const THEIRS = `{ "nodes": [
  {"id": "node_a", "type": "trigger", "componentName": "trigger", "position": {"x": 10.5, "y": 20}, "measured": {"width": 240, "height": 60},
   "zIndex": 3, "data": {"nodeName": "In", "nodeRemark": "r", "own": {"deep": [1, null]}, "parameters": {"entityConfigs": [{"identify": "n", "name": "N", "type": "LONG", "required": true}]}}},
  {"id": "node_b", "type": "ifelse", "position": {"x": 300, "y": 20}, "data": {"nodeName": "Fork", "parameters": {"choice": {"when": [
    {"id": "w1", "logicOperator": "AND", "expressionType": "mvel", "conditions": [{"id": "c", "expressionValue": "n > 3", "expressionDescription": "?"}]}], "otherwise": {"id": "o"}}}}},
  {"id": "node_c", "type": "hologram", "componentName": "hologram", "position": {"x": 600, "y": 20}, "data": {"parameters": {"depth": 3}}}
 ], "edges": [
  {"id": "x1", "source": "node_a", "target": "node_b", "type": "addable", "data": {}, "animated": false},
  {"id": "x2", "source": "node_b", "target": "node_c", "sourceHandle": "w1", "zIndex": 0},
  {"id": "x3", "source": "node_b", "target": "node_c", "sourceHandle": "stray"}
 ], "viewport": {"x": 1, "y": 2, "zoom": 0.75}, "note": "kept" }`;

test("a design that is opened and saved is the very same text", () => {
  assert.equal(writeDesign(readDesign(THEIRS), THEIRS), THEIRS);
});

test("a change touches nothing else, known or not", () => {
  const design = withData(readDesign(THEIRS), "node_a", { nodeName: "Begin" });
  const expected = JSON.parse(THEIRS) as { nodes: { data: Record<string, unknown> }[] };
  expected.nodes[0]!.data.nodeName = "Begin";
  assert.deepEqual(JSON.parse(writeDesign(design, THEIRS)), expected);
});

test("moving a node sets its place alone", () => {
  const design = withPlaces(readDesign(THEIRS), new Map([["node_c", { x: 7.4, y: 8 }]]));
  const expected = JSON.parse(THEIRS) as { nodes: { position: unknown }[] };
  expected.nodes[2]!.position = { x: 7, y: 8 };
  assert.deepEqual(JSON.parse(writeDesign(design, THEIRS)), expected);
});

test("an invalid design is rejected with a reason", () => {
  for (const text of ["", "[]", '{"nodes": 3}', '{"nodes": [], "edges": [1]}', '{"nodes": [{}]}']) {
    assert.throws(() => readDesign(text), NotADesign);
  }
});

test("a node without a component name is what its type says", () => {
  assert.deepEqual(readDesign(THEIRS).nodes.map(componentOf), ["trigger", "choice", "hologram"]);
});

test("edges of a branch that is taken away go with it, others stay", () => {
  const design = readDesign(THEIRS);
  assert.deepEqual(handlesOf(design.nodes[1]!), ["w1", "o"]);
  const after = withData(design, "node_b", { parameters: { choice: { when: [], otherwise: { id: "o" } } } });
  assert.deepEqual(after.edges.map((edge) => edge.id), ["x1", "x3"]);
});

test("a node that is added behind a choice joins the first free branch", () => {
  const { nodes } = readDesign(THEIRS);
  const led = (...branches: string[]) => ({ nodes, edges: branches.map((sourceHandle) => ({ source: "node_b", target: "node_c", sourceHandle })) });
  assert.equal(freeBranch(led(), nodes[1]!), "w1");
  assert.equal(freeBranch(led("w1"), nodes[1]!), "o");
  assert.equal(freeBranch(led("w1", "o"), nodes[1]!), undefined);
});

test("edges make no circle, no loop and no double", () => {
  const design = readDesign(THEIRS);
  assert.equal(mayConnect(design, { source: "node_c", target: "node_a" }), false);
  assert.equal(mayConnect(design, { source: "node_c", target: "node_c" }), false);
  assert.equal(mayConnect(design, { source: "node_a", target: "node_b", sourceHandle: null }), false);
  assert.equal(withEdge(design, { source: "node_b", target: "node_c", sourceHandle: "o" }).edges.length, 4);
});

test("a node that is removed takes its edges along", () => {
  assert.deepEqual(withoutNodes(readDesign(THEIRS), new Set(["node_b"])).edges, []);
});

test("earlier nodes are found, the nearest first", () => {
  assert.deepEqual(nodesBefore(readDesign(THEIRS), "node_c").map((node) => node.id), ["node_b", "node_a"]);
});

test("ids of new nodes are such as the platform takes, and new", () => {
  let design = readDesign(THEIRS);
  for (let at = 0; at < 50; at += 1) design = withNode(design, { id: newId(design), data: {} });
  const ids = design.nodes.map((node) => node.id);
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.every((id) => /^[a-z0-9_]+$/.test(id)));
});

test("a design without places is laid out from left to right, one with places stays", async () => {
  const design = readDesign(THEIRS);
  assert.equal(await placeMissing(design), design);
  const bare = { ...design, nodes: design.nodes.map(({ position: _, ...node }) => node) };
  const [a, b, c] = (await placeMissing(bare)).nodes.map((node) => node.position!);
  assert.ok(a!.x < b!.x && b!.x < c!.x);
});

test("steps are undone and done again; letters of one field are one step", () => {
  let history = startHistory("");
  for (const text of ["a", "ab", "abc"]) history = addState(history, text, "name");
  history = addState(history, "abc!", "other");
  history = undo(history);
  assert.equal(history.present, "abc");
  history = undo(history);
  assert.equal(history.present, "");
  assert.equal(redo(history).present, "abc");
  assert.deepEqual(addState(history, "new").future, []);
});

test("differences name nodes and edges; places count apart", () => {
  const old = readDesign(THEIRS);
  let now = withData(old, "node_a", { nodeName: "Begin" });
  now = withPlaces(withoutNodes(now, new Set(["node_c"])), new Map([["node_b", { x: 0, y: 0 }]]));
  now = withNode(now, { id: "node_d", data: { nodeName: "End" } });
  const found = differences(old, withEdge(now, { source: "node_b", target: "node_d", sourceHandle: "o" }));
  assert.deepEqual(found.added.map((one) => one.id), ["node_d"]);
  assert.deepEqual(found.removed.map((one) => one.id), ["node_c"]);
  assert.deepEqual(found.changed.map((one) => one.id), ["node_a"]);
  assert.deepEqual(found.moved.map((one) => one.id), ["node_b"]);
  assert.deepEqual(found.connected, ["Fork → End"]);
  assert.equal(found.disconnected.length, 2);
});

test("references are written as the platform reads them", () => {
  assert.equal(reference("a", "x.y"), "#{properties.a['x.y']}");
  assert.equal(reference("a", null), "#{properties.a}");
});

test("a text that is one reference has a key", () => {
  assert.equal(keyOf(reference("a", "x.y")), "x.y");
  for (const other of [reference("a", null), "#{properties.a['x']['y']}", "It is #{properties.a['x.y']}", "", null, 3]) assert.equal(keyOf(other), "");
});

test("outputs are those that parameters declare", () => {
  const node = readDesign(THEIRS).nodes[0]!;
  assert.deepEqual(outputsOf(node).map((one) => one.key), [null, "n"]);
  assert.deepEqual(sampleInput(node), { n: 0 });
});

test("values are read from text as they were written", () => {
  for (const value of [30, -1.5, true, "30", "true", "text", "#{properties.a['b']}", "", '"quoted"', { a: [1] }, "{not json", "[1"]) {
    assert.deepEqual(asValue(asText(value)), value);
  }
});
