/** Ready-made commands with which a device sends its first report. */
import type { BrokerInfo, DataSpec, TslDocument } from "../../api/generated";
import { choices, tree, type Member } from "../tsl/tree";

export interface Address {
  host: string;
  /** Of HTTP, as this page was loaded. */
  base: string;
  mqttPort: number | null;
  mqttTls: boolean;
}

/** Where devices find this platform; without a port as long as that is not known. */
export function addressOf(broker?: BrokerInfo): Address {
  const [tls, plain] = [broker?.mqtts_port, broker?.mqtt_port];
  return { host: location.hostname, base: location.origin, mqttPort: tls ?? plain ?? null, mqttTls: Boolean(tls) };
}

interface Device {
  sn: string;
  key: string;
  /** A sample report. */
  report: Record<string, unknown>;
}

/** A value that a member would take. */
function sampleValue({ spec, members, element }: Member): unknown {
  switch (spec.dataType) {
    case "BOOL":
      return true;
    case "ENUM":
      return choices(spec)[0]?.[0] ?? "";
    case "STRING":
      return "text".padEnd(spec.validator?.minSize ?? 0, "x").slice(0, spec.validator?.maxSize ?? 4);
    case "DATE":
      return Math.floor(Date.now() / 1000);
    case "STRUCT":
      return Object.fromEntries(members.map((one) => [one.key, sampleValue(one)]));
    case "ARRAY":
      return element ? Array.from({ length: spec.validator?.minSize ?? 1 }, () => sampleValue(element)) : [];
    default:
      return sampleNumber(spec);
  }
}

function sampleNumber({ validator, dataType }: DataSpec): number {
  const low = validator?.min ?? 0;
  const high = validator?.max ?? Math.max(low, 43);
  const middle = (low + high) / 2;
  return dataType === "FLOAT" || dataType === "DOUBLE" ? Math.round(middle * 10) / 10 : Math.floor(middle);
}

/** A report that the TSL takes: its first few scalar properties; of the product `generic` anything will do. */
export function sampleReport(tsl: TslDocument | undefined): Record<string, unknown> {
  const readable = tree(tsl?.properties).filter((one) => one.readable);
  const plain = readable.filter(({ spec }) => spec.dataType !== "STRUCT" && spec.dataType !== "ARRAY");
  const reported = (plain.length ? plain : readable).slice(0, 3);
  return reported.length ? Object.fromEntries(reported.map((one) => [one.key, sampleValue(one)])) : { temperature: 21.5 };
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

export function mqttCommand({ host, mqttPort, mqttTls }: Address, { sn, key, report }: Device): string {
  const tls = mqttTls ? " --tls-use-os-certs" : "";
  return [
    `mosquitto_pub -h ${host} -p ${mqttPort ?? 1883}${tls} -q 1 \\`,
    `  -u ${quoted(sn)} -P ${quoted(key)} \\`,
    `  -t ${quoted(`thing/${sn}/up/report`)} \\`,
    `  -m ${quoted(JSON.stringify({ properties: report }))}`,
  ].join("\n");
}

export function httpCommand({ base }: Address, { sn, key, report }: Device): string {
  return [
    `curl ${base}/ingest/v1/${encodeURIComponent(sn)}/report \\`,
    `  -u ${quoted(`${sn}:${key}`)} \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d ${quoted(JSON.stringify({ properties: report }))}`,
  ].join("\n");
}

/** Python's spelling of JSON. */
const python = (value: unknown) => JSON.stringify(value).replace(/\b(true|false|null)\b/g, (word) => ({ true: "True", false: "False", null: "None" })[word] ?? word);

export function pahoProgram({ host, mqttPort, mqttTls }: Address, { sn, key, report }: Device): string {
  return [
    "# pip install paho-mqtt",
    "import json",
    "from paho.mqtt import publish",
    "",
    "publish.single(",
    `    ${JSON.stringify(`thing/${sn}/up/report`)},`,
    `    json.dumps({"properties": ${python(report)}}),`,
    "    qos=1,",
    `    hostname=${JSON.stringify(host)},`,
    `    port=${mqttPort ?? 1883},`,
    `    auth={"username": ${JSON.stringify(sn)}, "password": ${JSON.stringify(key)}},`,
    ...(mqttTls ? ["    tls={},"] : []),
    ")",
  ].join("\n");
}
