import assert from "node:assert/strict";
import { test } from "node:test";

import { initialValue, readKind, translateKind } from "../src/features/flows/catalogue.ts";

const DATA = JSON.stringify({
  component: { name: "mqttPublish", title: "MQTT", description: "Publishes", type: "external", testable: true },
  properties: {
    topic: { index: 1, name: "topic", displayName: "Topic", description: "", required: true },
    broker: { index: 0, name: "broker", displayName: "Broker", description: "B", required: true },
  },
  outputProperties: {},
  schema: {
    $ref: "#/$defs/P",
    $defs: {
      P: { type: "object", properties: { broker: { $ref: "#/$defs/Broker" }, topic: { type: "string", maxLength: 9 } }, required: ["broker", "topic"] },
      Broker: {
        type: "object",
        properties: {
          host: { type: "string" },
          port: { type: "integer", minimum: 1, maximum: 65535, default: 1883 },
          clientId: { anyOf: [{ type: "null" }, { type: "string" }], default: null },
          modes: { type: "array", items: { enum: ["A", "B"] }, maxItems: 2 },
          more: { type: "object" },
        },
        required: ["host"],
      },
    },
  },
});

test("parameters are ordered and have shapes for nested values", () => {
  const { parameters, group } = readKind(DATA);
  assert.equal(group, "external");
  assert.deepEqual(parameters.map((one) => one.name), ["broker", "topic"]);
  const [broker] = parameters;
  assert.equal(broker!.shape.kind, "object");
  const fields = broker!.shape.kind === "object" ? broker!.shape.fields : [];
  assert.deepEqual(
    fields.map(({ name, title, required, shape }) => [name, title, required, shape.kind]),
    [
      ["host", "Host", true, "text"],
      ["port", "Port", false, "number"],
      ["clientId", "Client id", false, "text"],
      ["modes", "Modes", false, "list"],
      ["more", "More", false, "map"],
    ],
  );
  assert.deepEqual(initialValue(broker!.shape), { host: "" });
});

test("a node type is translated where texts exist", () => {
  const kind = readKind(DATA);
  const words = { title: "发布", description: "发布消息", parameters: { topic: ["主题"] as [string], other: ["?"] as [string] } };
  const told = translateKind(kind, words);
  assert.deepEqual([told.title, told.description], ["发布", "发布消息"]);
  assert.deepEqual(told.parameters.map((one) => [one.title, one.description]), [["Broker", "B"], ["主题", ""]]);
  assert.equal(translateKind(kind, undefined), kind);
});
