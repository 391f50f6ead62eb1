/** Groups, integrations and imports: what several pages of the fleet ask for. */
import { readable, request, requestFile } from "../../api/client";
import {
  findDeviceGroups,
  getIntegration,
  getImportErrors,
  getImportKeys,
  listImportFaults,
  searchIntegrations,
  type InitialDeviceKey,
  type RowFaults,
  type GroupResponse,
  type IntegrationResponse,
} from "../../api/generated";
import { rowsOf } from "../../api/pages";
import { readCsv } from "./csv";

/** The most groups that a tenant has. */
const GROUPS = 1_000;
/** Rows with errors that are shown; the downloaded sheet has all. */
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

export async function allGroups(): Promise<GroupResponse[]> {
  return (await request(findDeviceGroups({ body: { page_size: GROUPS, page_number: 1, with_device_count: true } }))).content;
}

/** Integrations that devices can be added to. */
export async function importIntegrations(): Promise<IntegrationResponse[]> {
  return rowsOf(await request(searchIntegrations({ body: { device_addable: true, page_size: 100, page_number: 1 } })));
}

export interface FaultySheet {
  titles: string[];
  rows: FaultyRow[];
}
export interface FaultyRow {
  /** As a spreadsheet counts: the titles are row 1. */
  number: number;
  cells: { text: string; faults: string[] }[];
  /** Errors of the row as a whole. */
  faults: string[];
}

/** Load the rows of an import that have errors, in the order of the sheet, with each error at its cell. */
export async function faultySheet(import_id: string, integration: string): Promise<FaultySheet> {
  const path = { import_id: Number(import_id) };
  const [faults, file, { integration_entities }] = await Promise.all([
    request(listImportFaults({ path, body: { page_size: FAULTS, page_number: 1 } })),
    requestFile(getImportErrors({ path, body: { format: "csv" }, parseAs: "blob" })),
    request(getIntegration({ path: { integration_id: integration } })),
  ]);
  const [head = [], ...sheet] = readCsv(await file.text());
  const known = { ...TITLES, ...Object.fromEntries(integration_entities.map((one) => [one.key, one.name])) };
  return { titles: head.slice(0, -1), rows: faults.content.map((row, at) => faultyRow(row, sheet[at] ?? [], head, known)) };
}

/** `head` ends with the column of errors, which are shown at their cells instead. */
function faultyRow({ row, faults }: RowFaults, cells: string[], head: string[], known: Record<string, string>): FaultyRow {
  const titles = head.slice(0, -1);
  const column = (one: { column?: string | null }) => (one.column ? (known[one.column] ?? one.column) : "");
  return {
    number: row + 2,
    cells: titles.map((title, at) => ({
      text: cells[at] ?? "",
      faults: faults.filter((one) => column(one) === title).map((one) => readable(one.error_message)),
    })),
    faults: faults.filter((one) => !titles.includes(column(one))).map((one) => readable(one.error_message)),
  };
}

/** Return the keys of imported devices. Each key can be read once, so keys that were read before are missing. */
export async function importKeys(import_id: string): Promise<InitialDeviceKey[]> {
  const keys: InitialDeviceKey[] = [];
  for (let page_number = 1; ; page_number++) {
    const path = { import_id: Number(import_id) };
    const page = await request(getImportKeys({ path, body: { page_size: KEYS, page_number } }));
    keys.push(...page.content);
    if (page.content.length < KEYS) return keys;
  }
}
