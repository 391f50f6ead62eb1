/** Reasons of the API in the Chinese console. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { plainReason, translateReason } from "../src/i18n/reasons.ts";

test("a reason is translated with its values, and an unknown one stays English", () => {
  assert.equal(translateReason("must have at most 255 characters"), "最多 255 个字符");
  assert.equal(translateReason("must be one of `heat`, `cool`. Got `warm`"), "必须是以下之一：`heat`, `cool`。当前值：`warm`");
  assert.equal(translateReason("properties.interval: is not known"), "properties.interval：未定义");
  assert.equal(translateReason("mode: it rained"), "mode: it rained");
});

test("the reasons of several fields and a reason inside another are translated", () => {
  assert.equal(translateReason("name: is required; content: must not be empty; describe the problem"), "name：必填；content：不能为空；请描述问题");
  assert.equal(translateReason("the codec returns no bytes for interval"), "编解码器：没有为 interval 返回字节");
  assert.equal(translateReason("history has 3 of 9 readings, after 5 requests"), "历史中有 3 / 9 个读数（已请求 5 次）");
});

test("a reason names permissions as the page of a role does", () => {
  const reason = "sets values or calls services; this needs entity_data.edit, device.edit, dashboard.edit or workflow.edit";
  assert.match(plainReason(reason), /needs Entity data – Edit, Devices – Edit, Dashboards – Edit or Flows – Edit$/);
  assert.match(translateReason(reason), /实体数据 – 编辑、设备 – 编辑、仪表板 – 编辑或流程 – 编辑$/);
  assert.equal(translateReason("must have at most 1000 bytes"), "最多 1000 字节");
});

test("a reason that names a limit is translated", () => {
  assert.equal(translateReason("eachMessages: more than 5 messages per second of this device"), "eachMessages：该设备每秒的消息超过 5 条");
  assert.equal(translateReason("keyFlows: at most 9 flows can listen to a.b"), "keyFlows：最多 9 个流程可监听 a.b");
  assert.equal(translateReason("resourceBytes: the tenant has 5 bytes of resources, 7 are allowed"), "resourceBytes：租户已上传 5 字节的文件，最多允许 7 字节");
});

test("an English reason names the type of a value", () => {
  assert.equal(plainReason("Latitude must be DOUBLE"), "Latitude must be a number");
  assert.equal(translateReason("Latitude must be DOUBLE"), "Latitude 必须是数字");
});

test("an English reason has the terms of the forms", () => {
  assert.equal(plainReason("must be LONG, DOUBLE, BOOLEAN or STRING"), "must be Whole number, Number, Boolean or Text");
  assert.equal(plainReason("must be EQ or NE for a threshold that is not a number"), "must be = or ≠ for a threshold that is not a number");
  assert.equal(plainReason("requires the comparison GT, GTE, LT or LTE"), "requires the comparison >, ≥, < or ≤");
});

test("types, bounds and nested reasons of codecs, designs and imports are translated", () => {
  assert.equal(translateReason("properties.temperature: must be a number, not a text"), "properties.temperature：必须是数字，不能是文本");
  assert.equal(translateReason("0 to 60: the codec returns no bytes"), "0 至 60：编解码器：没有返回字节");
  assert.equal(translateReason("leaves out end_time: 0 to 60 and 0 to 90 give the same bytes"), "忽略了 end_time：0 至 60 与 0 至 90 的字节相同");
  assert.equal(translateReason("arguments and code must have at most 1000 bytes"), "参数和代码合计最多 1000 字节");
  assert.equal(translateReason("must be one of a, b. Got c"), "必须是以下之一：a, b。当前值：c");
});

test("a reason behind a time is translated, and none is hidden by a more general one", () => {
  assert.equal(translateReason("2026-11-27 09:01 UTC: the broker did not answer in time"), "2026-11-27 09:01 UTC：MQTT 服务器没有及时响应");
  assert.equal(translateReason("CT1 cannot receive the call now. A device receives it when it connects, a LoRaWAN sensor after its next uplink"), "CT1 目前无法接收调用：设备将在连接后收到，LoRaWAN 传感器将在下次上行后收到");
  assert.equal(translateReason("must be EQ or NE for a threshold that is not a number"), "阈值不是数字时只能选择 = 或 ≠");
});

test("a reason with a regular expression says which characters are allowed", () => {
  const reason = String.raw`must match ^[A-Za-z0-9_@#\-/\[\]][A-Za-z0-9_@#$\-/\[\]]*$`;
  assert.equal(plainReason(reason), "must have only letters, digits and _ - @ # $ / [ ], and must not begin with $");
  assert.equal(plainReason(`identifier: ${reason}`), "identifier: must have only letters, digits and _ - @ # $ / [ ], and must not begin with $");
  assert.equal(translateReason(reason), "只能包含字母、数字和 _ - @ # $ / [ ]，且不能以 $ 开头");
  assert.equal(plainReason("must match ^x$"), "must match ^x$");
});

test("reasons of addresses, serial numbers and sheets are plain and translated", () => {
  const address = "'300.1.1.1' does not appear to be an IPv4 or IPv6 network";
  assert.equal(plainReason(address), "'300.1.1.1' is not an IP address or network");
  assert.equal(translateReason(address), "'300.1.1.1' 不是 IP 地址或网段");
  assert.equal(translateReason("must be 1 to 64 letters, digits, '_' or '-'"), "必须是 1 至 64 个字母、数字、“_”或“-”");
  assert.equal(translateReason("a device with the SN CT1 exists already"), "SN 为 CT1 的设备已存在");
  const column = "there is no column 'Foo' (read as CSV in UTF-8, divided by commas); the columns are Name, SN";
  assert.equal(translateReason(column), "没有名为 'Foo' 的列（按 UTF-8 编码、以逗号分隔的 CSV 读取）。可用的列：Name, SN");
  assert.equal(plainReason("entity Sync interval value must be in [30, 86400]"), "must be from 30 to 86400");
  assert.equal(translateReason("entity Sync interval value must be in [30, 86400]"), "必须在 30 到 86400 之间");
});
