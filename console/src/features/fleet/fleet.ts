/** Groups, integrations and imports: what several pages of the fleet ask for. */
import { ask, askFile } from "../../api/client";
import {
  findDeviceGroups,
  getIntegration,
  getImportErrors,
  getImportKeys,
  listImportFaults,
  searchIntegrations,
  type FirstKey,
  type RowFaults,
  type ShownGroup,
  type ShownIntegration,
} from "../../api/generated";
import { rowsOf } from "../../api/pages";
import { readCsv } from "./csv";

/** The most groups that a tenant has. */
const GROUPS = 1_000;
/** Rows with faults that are shown; the sheet has all of them. */
export const FAULTS = 200;
const KEYS = 500;
/** How sheets call the columns that every device has. */
const TITLES: Record<string, string> = {
  name: "Name",
  "device-group": "Device Group",
  "location-latitude": "Latitude",
  "location-longitude": "Longitude",
  "location-address": "Address",
};

export async function allGroups(): Promise<ShownGroup[]> {
  return (await ask(findDeviceGroups({ body: { page_size: GROUPS, page_number: 1, with_device_count: true } }))).content;
}

/** Integrations that devices can be added to. */
export async function addable(): Promise<ShownIntegration[]> {
  return rowsOf(await ask(searchIntegrations({ body: { device_addable: true, page_size: 100, page_number: 1 } })));
}

export interface FaultySheet {
  titles: string[];
  rows: FaultyRow[];
}
export interface FaultyRow {
  /** As a spreadsheet counts: the titles are row 1. */
  number: number;
  cells: { text: string; faults: string[] }[];
  /** What is wrong with the row as a whole. */
  faults: string[];
}

/** The rows of an import that have faults, as they stand in the sheet, each fault at its cell. */
export async function faultySheet(import_id: string, integration: string): Promise<FaultySheet> {
  const path = { import_id: Number(import_id) };
  const [faults, file, { integration_entities }] = await Promise.all([
    ask(listImportFaults({ path, body: { page_size: FAULTS, page_number: 1 } })),
    askFile(getImportErrors({ path, body: { format: "csv" }, parseAs: "blob" })),
    ask(getIntegration({ path: { integration_id: integration } })),
  ]);
  const [head = [], ...sheet] = readCsv(await file.text());
  const known = { ...TITLES, ...Object.fromEntries(integration_entities.map((one) => [one.key, one.name])) };
  return { titles: head.slice(0, -1), rows: faults.content.map((row, at) => faultyRow(row, sheet[at] ?? [], head, known)) };
}

/** `head` ends with the column of what is wrong, which is shown at the cells instead. */
function faultyRow({ row, faults }: RowFaults, cells: string[], head: string[], known: Record<string, string>): FaultyRow {
  const titles = head.slice(0, -1);
  const column = (one: { column?: string | null }) => (one.column ? (known[one.column] ?? one.column) : "");
  return {
    number: row + 2,
    cells: titles.map((title, at) => ({
      text: cells[at] ?? "",
      faults: faults.filter((one) => column(one) === title).map((one) => one.error_message),
    })),
    faults: faults.filter((one) => !titles.includes(column(one))).map((one) => one.error_message),
  };
}

/** What the devices of an import log in with. Keys are told once: those told before are missing. */
export async function importKeys(import_id: string): Promise<FirstKey[]> {
  const keys: FirstKey[] = [];
  for (let page_number = 1; ; page_number++) {
    const path = { import_id: Number(import_id) };
    const page = await ask(getImportKeys({ path, body: { page_size: KEYS, page_number } }));
    keys.push(...page.content);
    if (page.content.length < KEYS) return keys;
  }
}
