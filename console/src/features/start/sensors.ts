/** Lists of LoRaWAN sensors, as people paste them, and the sheet that adds them. No I/O. */
import { readCsv, writeCsv } from "../fleet/csv.ts";
import { isCode, plainLabel, readCode, type Label, type LabelFault } from "./tr005.ts";

/** Inputs of the service by which a network server adds devices. */
export interface Input {
  key: string;
  name: string;
}
export interface Sensor {
  devEui: string;
  name: string;
  /** Other inputs, by their keys. */
  more: Record<string, string>;
}
/** Why a line cannot be added: words of the catalogue. */
export interface LineFault {
  line: number;
  fault: LabelFault["fault"] | "sensors.eui" | "sensors.twice";
  values: Record<string, string>;
}
export interface Sensors {
  sensors: Sensor[];
  faults: LineFault[];
  /** Titles of columns that are not read. */
  passed: string[];
}

/** The last part of an input's key. */
export const idOf = ({ key }: Input): string => key.slice(key.lastIndexOf(".") + 1);
/** The first line of a sheet that says what divides its columns. */
const SEP = /^"?sep=(.)"?$/i;
const plain = (title: string): string => title.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
const isTitle = (title: string): boolean => plain(title) === "deveui";

/**
 * Normalize an EUI such as `24-e1:24 …` to 16 hex digits in capitals; null when it is invalid. A Sigfox ID has up to
 * 8 digits and is padded with zeros.
 */
export function euiOf(text: string, sigfox = false): string | null {
  const digits = text.replace(/[\s:-]/g, "").toUpperCase();
  const padded = sigfox && /^[0-9A-F]{1,8}$/.test(digits) ? digits.padStart(16, "0") : digits;
  return /^[0-9A-F]{16}$/.test(padded) ? padded : null;
}

/** Return the inputs of a network server that a label contains. */
export function inputsOfLabel(label: Label, inputs: Input[]): Record<string, string> {
  const known: Record<string, string> = { join_eui: label.joinEui, app_key: label.appKey };
  return Object.fromEntries(inputs.flatMap((one) => (known[idOf(one)] ? [[one.key, known[idOf(one)]!]] : [])));
}

/**
 * Return the sensors of a text: lines with a DevEUI and an optional name, a table whose first line names a column
 * DevEUI, or scanned QR codes. Columns are separated by commas, semicolons or tabs.
 */
export function sensorsOf(text: string, inputs: Input[], sigfox = false): Sensors {
  const separator = separatorOf(text);
  const rows = readCsv(text, separator).map((cells, at) => ({ line: at + 1, cells: cells.map((one) => one.trim()) }));
  const filled = rows.filter(({ cells }, at) => cells.some(Boolean) && !(at === 0 && SEP.test(text.trimStart().split(/\r|\n/)[0]!)));
  const titled = filled[0]?.cells.some(isTitle);
  const titles = titled ? filled.shift()!.cells : ["DevEUI", "Name"];
  const columns = titles.map((title) => columnOf(title, inputs));
  const found: Sensors = { sensors: [], faults: [], passed: titled ? titles.filter((title, at) => title && !columns[at]) : [] };
  const lines = new Map<string, number>();
  for (const { line, cells } of filled) {
    const whole = titled ? null : plainLabel(cells.join(separator)); // its fields may be divided as columns are
    const sensor = whole ? sensorOf(whole, inputs) : isCode(cells[0] ?? "") ? labelled(cells[0]!, inputs) : listed(cells, columns, sigfox);
    if ("fault" in sensor) found.faults.push({ line, ...sensor });
    else if (lines.has(sensor.devEui)) found.faults.push({ line, fault: "sensors.twice", values: { text: sensor.devEui, line: String(lines.get(sensor.devEui)) } });
    else found.sensors.push(sensor);
    if (!("fault" in sensor)) lines.set(sensor.devEui, lines.get(sensor.devEui) ?? line);
  }
  return found;
}

/** Return the column separator; Excel names it in a first line `sep=`. */
function separatorOf(text: string): string {
  const [first = ""] = text.trimStart().split(/\r|\n/);
  const said = SEP.exec(first)?.[1];
  if (said) return said;
  return ["\t", ";"].find((sign) => first.includes(sign)) ?? ",";
}

/** Return the content of a column: the DevEUI, the name, or the key of an input. */
function columnOf(title: string, inputs: Input[]): string | undefined {
  const wanted = plain(title).replace(/^appeui$/, "joineui");
  if (wanted === "deveui" || wanted === "name") return wanted;
  return inputs.find((one) => [plain(one.name), plain(idOf(one)), plain(one.key)].includes(wanted))?.key;
}

function labelled(text: string, inputs: Input[]): Sensor | Omit<LineFault, "line"> {
  const label = readCode(text);
  return "fault" in label ? label : sensorOf(label, inputs);
}

const sensorOf = (label: Label, inputs: Input[]): Sensor => ({ devEui: label.devEui, name: label.serial, more: inputsOfLabel(label, inputs) });

function listed(cells: string[], columns: (string | undefined)[], sigfox: boolean): Sensor | Omit<LineFault, "line"> {
  const sensor: Sensor = { devEui: "", name: "", more: {} };
  for (const [at, cell] of cells.entries()) {
    const column = columns[at];
    if (column === "deveui") sensor.devEui = cell;
    else if (column === "name") sensor.name = cell;
    else if (column && cell) sensor.more[column] = cell;
  }
  const devEui = euiOf(sensor.devEui, sigfox);
  return devEui ? { ...sensor, devEui } : { fault: "sensors.eui", values: { text: sensor.devEui } };
}

/** The sheet that an import takes: columns by the keys of inputs. A sensor without a name has that of its DevEUI. */
export function sheetOf(sensors: Sensor[], service: string, model: string): string {
  const more = [...new Set(sensors.flatMap((one) => Object.keys(one.more)))];
  const head = ["name", `${service}.dev_eui`, `${service}.model`, ...more];
  return writeCsv([head, ...sensors.map((one) => [one.name || one.devEui, one.devEui, model, ...more.map((key) => one.more[key] ?? "")])]);
}
