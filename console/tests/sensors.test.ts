import assert from "node:assert/strict";
import { test } from "node:test";

import { euiOf, sensorsOf, sheetOf } from "../src/features/start/sensors.ts";
import { readLabel } from "../src/features/start/tr005.ts";

const ALL = "LW:D0:1122334455667788:AABBCCDDEEFF0011:AABB1122:OAABBCCDDEEFF:SYYWWNNNNNN:PFOOBAR:CAF2C";
const INPUTS = [
  { key: "chirpstack.integration.add_device.join_eui", name: "JoinEUI" },
  { key: "chirpstack.integration.add_device.app_key", name: "AppKey" },
];

test("a label is read with all its fields, in whatever case a scanner types", () => {
  const label = { joinEui: "1122334455667788", devEui: "AABBCCDDEEFF0011", vendor: "AABB", profile: "1122", owner: "AABBCCDDEEFF", serial: "YYWWNNNNNN", proprietary: "FOOBAR" };
  assert.deepEqual(readLabel(ALL), label);
  assert.deepEqual(readLabel(` ${ALL.toLowerCase()}\n`), label);
  assert.deepEqual(readLabel("LW:D0:1122334455667788:AABBCCDDEEFF0011:AABB1122"), { ...label, owner: "", serial: "", proprietary: "" });
});

test("what is wrong with a label is told by its field", () => {
  const fault = (text: string) => {
    const found = readLabel(text);
    return "fault" in found ? [found.fault, ...Object.values(found.values)] : found;
  };
  assert.deepEqual(fault("https://example.com"), ["qr.no-label"]);
  assert.deepEqual(fault("LW:D1:1122334455667788"), ["qr.schema", "D1"]);
  assert.deepEqual(fault("LW:D0:1122334455667788:AABBCCDDEEFF0011"), ["qr.short"]);
  assert.deepEqual(fault("LW:D0:112233445566778:AABBCCDDEEFF0011:AABB1122"), ["qr.join-eui", "112233445566778"]);
  assert.deepEqual(fault("LW:D0:1122334455667788:AABBCCDDEEFF001G:AABB1122"), ["qr.dev-eui", "AABBCCDDEEFF001G"]);
  assert.deepEqual(fault("LW:D0:1122334455667788:AABBCCDDEEFF0011:AABB"), ["qr.profile", "AABB"]);
  assert.deepEqual(fault(`${ALL.slice(0, 54)}:XFOO`), ["qr.field", "XFOO"]);
  assert.deepEqual(fault(`${ALL.slice(0, 54)}:S1:S2`), ["qr.twice", "S"]);
  assert.deepEqual(fault(ALL.replace("FOOBAR", "FOOBAZ")), ["qr.checksum"]);
});

test("an EUI is read as people write it", () => {
  assert.deepEqual(["24-e1-24-13-6b-50-22-17", "24:E1:24:13:6B:50:22:17", "24e124136b50221", ""].map(euiOf), ["24E124136B502217", "24E124136B502217", null, null]);
});

test("a list may be bare, have titles in any order, or be what a scanner read", () => {
  assert.deepEqual(sensorsOf("24e124136b502217, Roof\n\n24E124136B502218\n", INPUTS).sensors, [
    { devEui: "24E124136B502217", name: "Roof", more: {} },
    { devEui: "24E124136B502218", name: "", more: {} },
  ]);
  const table = sensorsOf("SN;Name;AppEUI;Dev EUI;App Key\r\n1;Roof;1122334455667788;24e124136b502217;000102030405060708090A0B0C0D0E0F\r\n", INPUTS);
  assert.deepEqual(table.passed, ["SN"]);
  assert.deepEqual(table.sensors, [
    { devEui: "24E124136B502217", name: "Roof", more: { [INPUTS[0]!.key]: "1122334455667788", [INPUTS[1]!.key]: "000102030405060708090A0B0C0D0E0F" } },
  ]);
  assert.deepEqual(sensorsOf(ALL, INPUTS).sensors, [{ devEui: "AABBCCDDEEFF0011", name: "YYWWNNNNNN", more: { [INPUTS[0]!.key]: "1122334455667788" } }]);
  assert.deepEqual(sensorsOf(ALL, []).sensors[0]!.more, {});
});

test("each line that cannot be added is told, and one that comes twice", () => {
  const { sensors, faults } = sensorsOf("24E124136B502217\nx\n24-E1-24-13-6B-50-22-17\nLW:D0:1", []);
  assert.equal(sensors.length, 1);
  assert.deepEqual(faults.map(({ line, fault, values }) => [line, fault, ...Object.values(values)]), [
    [2, "sensors.eui", "x"],
    [3, "sensors.twice", "24E124136B502217", "1"],
    [4, "qr.short"],
  ]);
});

test("the sheet names columns by the keys of the server's inputs", () => {
  const { sensors } = sensorsOf("DevEUI,Name,AppKey\n24E124136B502217,,00\n24E124136B502218,Roof,", INPUTS);
  assert.equal(
    sheetOf(sensors, "chirpstack.integration.add_device", "AM102"),
    '"name","chirpstack.integration.add_device.dev_eui","chirpstack.integration.add_device.model","chirpstack.integration.add_device.app_key"\r\n' +
      '"24E124136B502217","24E124136B502217","AM102","00"\r\n"Roof","24E124136B502218","AM102",""\r\n',
  );
});
