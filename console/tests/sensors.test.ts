import assert from "node:assert/strict";
import { test } from "node:test";

import { decodeText } from "../src/features/fleet/csv.ts";
import { euiOf, sensorsOf, sheetOf } from "../src/features/start/sensors.ts";
import { readCode, readLabel } from "../src/features/start/tr005.ts";

const ALL = "LW:D0:1122334455667788:AABBCCDDEEFF0011:AABB1122:OAABBCCDDEEFF:SYYWWNNNNNN:PFOOBAR:CAF2C";
const INPUTS = [
  { key: "chirpstack.integration.add_device.join_eui", name: "JoinEUI" },
  { key: "chirpstack.integration.add_device.app_key", name: "AppKey" },
];

test("a label is read with all its fields in upper and lower case", () => {
  const label = { joinEui: "1122334455667788", devEui: "AABBCCDDEEFF0011", appKey: "", vendor: "AABB", profile: "1122", owner: "AABBCCDDEEFF", serial: "YYWWNNNNNN", proprietary: "FOOBAR" };
  assert.deepEqual(readLabel(ALL), label);
  assert.deepEqual(readLabel(` ${ALL.toLowerCase()}\n`), label);
  assert.deepEqual(readLabel("LW:D0:1122334455667788:AABBCCDDEEFF0011:AABB1122"), { ...label, owner: "", serial: "", proprietary: "" });
});

test("a code may have the DevEUI and the JoinEUI alone, or fields with names in any order", () => {
  const eui = { devEui: "647FDA0000001234", joinEui: "647FDA8010001234" };
  const key = "000102030405060708090A0B0C0D0E0F";
  const read = (text: string) => {
    const found = readCode(text);
    return "fault" in found ? found.fault : { devEui: found.devEui, joinEui: found.joinEui, ...(found.appKey && { appKey: found.appKey }) };
  };
  assert.deepEqual(read("647FDA0000001234:647FDA8010001234"), eui);
  assert.deepEqual(read(" 647fda0000001234 647fda8010001234\n"), eui);
  assert.deepEqual(read(`647FDA0000001234:647FDA8010001234:${key}`), { ...eui, appKey: key });
  assert.deepEqual(read(`AppEUI:647FDA8010001234,DevEUI:647FDA0000001234,AppKey:${key}`), { ...eui, appKey: key });
  assert.deepEqual(read("DEV EUI=647FDA0000001234; JOIN EUI=647FDA8010001234"), eui);
  assert.deepEqual(read("DevEUI: 647FDA0000001234"), { ...eui, joinEui: "" });
  assert.deepEqual(read("Dev EUI: 64-7F-DA-00-00-00-12-34, App EUI: 64:7F:DA:80:10:00:12:34"), eui);
  assert.deepEqual(read("URN:LW:DP:647FDA8010001234:647FDA0000001234:AABB1122:%V0102"), eui);
  assert.deepEqual(read("LW:D0:647FDA8010001234:647FDA0000001234:AABB1122"), eui);
  assert.equal(read("647FDA0000001234:647FDA80100012"), "qr.no-label");
  assert.equal(read(key), "qr.no-label");
});

test("a label error names the field", () => {
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
  assert.deepEqual(["24-e1-24-13-6b-50-22-17", "24:E1:24:13:6B:50:22:17", "24e124136b50221", ""].map((text) => euiOf(text)), ["24E124136B502217", "24E124136B502217", null, null]);
});

test("a list may have no titles, titles in any order, or scanned codes", () => {
  assert.deepEqual(sensorsOf("24e124136b502217, Roof\n\n24E124136B502218\n", INPUTS).sensors, [
    { devEui: "24E124136B502217", name: "Roof", more: {} },
    { devEui: "24E124136B502218", name: "", more: {} },
  ]);
  const table = sensorsOf("SN;Name;AppEUI;Dev EUI;App Key\r\n1;Roof;1122334455667788;24e124136b502217;000102030405060708090A0B0C0D0E0F\r\n", INPUTS);
  assert.deepEqual(table.passed, ["SN"]);
  assert.deepEqual(table.sensors, [
    { devEui: "24E124136B502217", name: "Roof", more: { [INPUTS[0]!.key]: "1122334455667788", [INPUTS[1]!.key]: "000102030405060708090A0B0C0D0E0F" } },
  ]);
  const chinese = [...INPUTS, { ...INPUTS[0]!, name: "入网标识" }, { ...INPUTS[1]!, name: "应用密钥" }];
  assert.deepEqual(sensorsOf("DevEUI,应用密钥\n24e124136b502217,00\n", chinese).sensors, [{ devEui: "24E124136B502217", name: "", more: { [INPUTS[1]!.key]: "00" } }]);
  assert.deepEqual(sensorsOf(ALL, INPUTS).sensors, [{ devEui: "AABBCCDDEEFF0011", name: "YYWWNNNNNN", more: { [INPUTS[0]!.key]: "1122334455667788" } }]);
  assert.deepEqual(sensorsOf(ALL, []).sensors[0]!.more, {});
  assert.deepEqual(sensorsOf("A84041000181C061\n647FDA0000001234:647FDA8010001234\n", INPUTS).sensors, [
    { devEui: "A84041000181C061", name: "", more: {} },
    { devEui: "647FDA0000001234", name: "", more: { [INPUTS[0]!.key]: "647FDA8010001234" } },
  ]);
});

test("a list of codes keeps the fields that its delimiter divides", () => {
  const [joinEui, appKey] = INPUTS.map(({ key }) => key) as [string, string];
  const key = "000102030405060708090A0B0C0D0E0F";
  const { sensors, faults } = sensorsOf(`DevEUI:647FDA0000001234,AppEUI:647FDA8010001234,AppKey:${key}\n647FDA0000001235,647FDA8010001234\n647FDA0000001236,Room`, INPUTS);
  assert.deepEqual(faults, []);
  assert.deepEqual(sensors, [
    { devEui: "647FDA0000001234", name: "", more: { [joinEui]: "647FDA8010001234", [appKey]: key } },
    { devEui: "647FDA0000001235", name: "", more: { [joinEui]: "647FDA8010001234" } },
    { devEui: "647FDA0000001236", name: "Room", more: {} },
  ]);
});

test("a file is read as a spreadsheet program writes it", () => {
  const text = "DevEUI;Name\r\n24E124136B502217;Kühlhaus\r\n";
  const utf16 = Uint8Array.from([0xff, 0xfe, ...Buffer.from(text, "utf16le")]);
  for (const bytes of [Buffer.from(text), Buffer.from(`\ufeff${text}`), Buffer.from(text, "latin1"), utf16, Buffer.from(`sep=;\r\n${text}`)]) {
    const found = sensorsOf(decodeText(bytes), []);
    assert.deepEqual([found.sensors.map(({ name }) => name), found.faults], [["Kühlhaus"], []]);
  }
});

test("each invalid line and each repeated line is reported", () => {
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

test("a Sigfox ID is a DevEUI with zeros in front", () => {
  assert.deepEqual(["1a2345", "1A 23 45", "24E124136B502217", "123456789", ""].map((text) => euiOf(text, true)), ["00000000001A2345", "00000000001A2345", "24E124136B502217", null, null]);
  assert.equal(euiOf("1A2345"), null);
  assert.equal(sensorsOf("1A2345,Door", [], true).sensors[0]?.devEui, "00000000001A2345");
  assert.equal(sensorsOf("1A2345,Door", []).faults.length, 1);
});
