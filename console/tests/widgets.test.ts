import assert from "node:assert/strict";
import { test } from "node:test";

import { createWidget, DEFAULTS, entityIds, readWidgets, writeWidget } from "../src/features/dashboards/widgets.ts";

const entity = (id: string) => ({ value: id, label: "t", rawData: { entityKey: `direct.device.${id}.t`, entityTags: [1] } });
const card = {
  type: "dataCard",
  class: "data_card",
  config: { title: "T", entity: entity("101"), icons: { 1: "☼" } },
  pos: { w: 3, h: 3, x: 2, y: 1, i: "1", minW: 2, moved: false },
  defaultRow: 4,
};
const map = { type: "map", config: { devices: [{ id: "501" }] }, pos: { x: 0, y: 9, w: 4, h: 4, i: "2" } };

test("a new widget is put where nothing is, from the upper left", () => {
  const [gauge] = readWidgets([{ widget_id: "1", data: { type: "map", pos: { x: 4, y: 0, w: 4, h: 3 } } }]);
  const one = createWidget("value", DEFAULTS, [gauge!]);
  const other = createWidget("line", DEFAULTS, [gauge!, one]);
  assert.deepEqual([one.place, other.place], [{ x: 0, y: 0, w: 3, h: 2 }, { x: 0, y: 3, w: 6, h: 4 }]);
});

test("what another console made is written as it was", () => {
  const stored = [map, card].map((data, at) => ({ widget_id: String(at + 1), data }));
  assert.deepEqual(readWidgets(stored).map(writeWidget), stored);
});

test("a moved widget of another console has another place and is else the same", () => {
  const [widget] = readWidgets([{ widget_id: "1", data: card }]);
  const { data } = writeWidget({ ...widget!, place: { x: 5, y: 6, w: 4, h: 2 } });
  assert.deepEqual(data, { ...card, pos: { ...card.pos, x: 5, y: 6, w: 4, h: 2 } });
});

test("widgets of another console are drawn where there is something like them", () => {
  const line = { type: "lineChart", config: { time: 3600000, entityPosition: [{ id: "a", entity: entity("7"), position: 1 }] } };
  const stored = [card, map, line, { type: "radarChart", config: { metrics: "MAX", entityList: [entity("8"), entity("9")] } }];
  const found = readWidgets(stored.map((data, at) => ({ widget_id: String(at), data })));
  const kinds = Object.fromEntries(found.map((one) => [one.foreign!.type, one]));
  assert.deepEqual(Object.fromEntries(Object.entries(kinds).map(([type, one]) => [type, one.kind])), {
    dataCard: "value",
    map: null,
    lineChart: "line",
    radarChart: "bar",
  });
  assert.deepEqual(kinds.lineChart!.settings.entities, [{ id: "7", key: "direct.device.7.t" }]);
  assert.equal(kinds.lineChart!.settings.span, 3600000);
  assert.equal(kinds.radarChart!.settings.aggregate, "MAX");
});

test("ours come back as they were, without settings that their kind has not", () => {
  const settings = { ...DEFAULTS, title: "Room", entities: [{ id: "1", key: "k" }], text: "not a value's" };
  const widget = createWidget("value", settings, []);
  const { data } = writeWidget(widget);
  assert.deepEqual(data, {
    type: "thingway",
    kind: "value",
    pos: { x: 0, y: 0, w: 3, h: 2 },
    settings: { title: "Room", entities: [{ id: "1", key: "k" }] },
  });
  const [again] = readWidgets([{ widget_id: "4", data }]);
  assert.deepEqual(again!.settings, { ...settings, text: "" });
});

test("a kind of ours that a newer console made is kept and not drawn", () => {
  const data = { type: "thingway", kind: "hologram", pos: { x: 0, y: 0, w: 1, h: 1 }, settings: { depth: 3 } };
  const [widget] = readWidgets([{ widget_id: "1", data }]);
  assert.equal(widget!.kind, null);
  assert.deepEqual(writeWidget(widget!).data, data);
});

test("a save names the entities of ours and those that others still show", () => {
  const ours = createWidget("value", { ...DEFAULTS, entities: [{ id: "5", key: "k" }] }, []);
  const theirs = readWidgets([{ widget_id: "1", data: card }]);
  assert.deepEqual(entityIds([ours, ...theirs], ["101", "102", "5"]), ["5", "101"]);
});

test("a place that cannot be is put right", () => {
  const [widget] = readWidgets([{ widget_id: "1", data: { type: "x", pos: { x: 11, y: -3, w: 40, h: "?" } } }]);
  assert.deepEqual(widget!.place, { x: 0, y: 0, w: 12, h: 2 });
});
