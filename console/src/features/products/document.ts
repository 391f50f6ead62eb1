/** A product as the editor has it: the text of its TSL. */
import type { ParamSpec, PropertySpec, TslDocument } from "../../api/generated";

export const EMPTY: TslDocument = {
  version: "v1.0",
  properties: [{ id: "temperature", name: "Temperature", accessMode: "R", dataSpec: { dataType: "FLOAT", unitName: "°C", fractionDigits: 1 } }],
  events: [],
  services: [],
};

interface Keyed {
  id?: string;
  propertyKey?: string | null;
}

const last = (path: string): string => path.slice(path.lastIndexOf(".") + 1);

/** An entry whose property key, if it differs from the id, is its last part: it follows a parent that is renamed. */
function withoutPropertyKey<T extends Keyed>({ propertyKey, ...rest }: T): T {
  const key = last(propertyKey ?? "");
  return (key && key !== last(rest.id ?? "") ? { ...rest, propertyKey: key } : rest) as T;
}

/** A stored document as people edit it: without the property keys that repeat ids. */
export function withoutRepeatedKeys(document: TslDocument): TslDocument {
  return {
    ...document,
    properties: document.properties?.map(withoutPropertyKey),
    events: document.events?.map((one) => ({ ...one, outputs: one.outputs?.map(withoutPropertyKey) })),
    services: document.services?.map((one) => ({ ...one, inputs: one.inputs?.map(withoutPropertyKey), outputs: one.outputs?.map(withoutPropertyKey) })),
  };
}

export const formatDocument = (document: TslDocument): string => JSON.stringify(document, null, 2);

/** The document that a text is; null while it is no JSON object. */
export function parseDocument(text: string): TslDocument | null {
  try {
    const document: unknown = JSON.parse(text);
    return typeof document === "object" && document !== null && !Array.isArray(document) ? (document as TslDocument) : null;
  } catch {
    return null;
  }
}

/** The version behind another: `v1.0` becomes `v1.1`. */
export function nextVersion(version: string): string {
  return version.replace(/\d+$/, (last) => String(Number(last) + 1)) === version ? `${version}.1` : version.replace(/\d+$/, (last) => String(Number(last) + 1));
}

type Entry = PropertySpec | ParamSpec;

/** Return an id after the rename of a member; ids of its members begin with the new id. */
function renamedId(id: string, from: string, to: string): string {
  return id === from || id.startsWith(`${from}.`) ? to + id.slice(from.length) : id;
}

/** Return the id of the STRUCT, ARRAY, service or event that an id belongs to; "" at the top. */
const parentOf = (id: string): string => id.slice(0, Math.max(0, id.lastIndexOf(".")));

/** Return members after one was renamed, or the service or event that has them: ids, property keys and parents of all that are inside follow. */
export function renameMembers<T extends Entry>(entries: T[], from: string, to: string): T[] {
  return entries.map((entry) => {
    const id = renamedId(entry.id ?? "", from, to);
    if (id === entry.id) return entry;
    const renamed = { ...entry, id, ...(entry.propertyKey ? { propertyKey: renamedId(entry.propertyKey, from, to) } : {}) };
    const { parentId, ...rest } = entry.dataSpec ?? {};
    return parentId ? { ...renamed, dataSpec: { ...rest, ...(parentOf(id) ? { parentId: parentOf(id) } : {}) } } : renamed;
  });
}

/** Return a document after the rename of a property; parameters that refer to it or its members follow. */
export function renameProperty(document: TslDocument, from: string, to: string): TslDocument {
  const follow = (params: ParamSpec[] = []) =>
    params.map((param) => ({
      ...param,
      ...(param.ref ? { ref: renamedId(param.ref, from, to) } : {}),
      ...(param.dataSpec?.ref ? { dataSpec: { ...param.dataSpec, ref: renamedId(param.dataSpec.ref, from, to) } } : {}),
    }));
  const within = <T extends { inputs?: ParamSpec[]; outputs?: ParamSpec[] }>(one: T): T => ({
    ...one,
    ...(one.inputs ? { inputs: follow(one.inputs) } : {}),
    ...(one.outputs ? { outputs: follow(one.outputs) } : {}),
  });
  return {
    ...document,
    ...(document.properties ? { properties: renameMembers(document.properties, from, to) } : {}),
    ...(document.events ? { events: document.events.map(within) } : {}),
    ...(document.services ? { services: document.services.map(within) } : {}),
  };
}

/** Return members without a member and its members. */
export function withoutMember<T extends Entry>(entries: T[], id: string): T[] {
  return withoutMembersOf(entries, id).filter((one) => one.id !== id);
}

/** Return members without the members of one member. */
export function withoutMembersOf<T extends Entry>(entries: T[], id: string): T[] {
  return entries.filter((one) => !one.id?.startsWith(`${id}.`));
}

export interface Difference {
  id: string;
  kind: "added" | "removed" | "changed";
  before: string;
  after: string;
}

function flattenMembers(document: TslDocument): Map<string, string> {
  const all: [string, { id?: string }][] = [
    ...(document.properties ?? []).map((one): [string, PropertySpec] => ["properties", one]),
    ...(document.events ?? []).map((one): [string, { id?: string }] => ["events", one]),
    ...(document.services ?? []).map((one): [string, { id?: string }] => ["services", one]),
  ];
  return new Map(all.map(([kind, one]) => [`${kind}.${one.id}`, JSON.stringify(one, null, 2)]));
}

/** Return the differences between two documents, member by member. */
export function differences(before: TslDocument, after: TslDocument): Difference[] {
  const [old, now] = [flattenMembers(before), flattenMembers(after)];
  const ids = [...new Set([...old.keys(), ...now.keys()])];
  return ids
    .filter((id) => old.get(id) !== now.get(id))
    .map((id) => ({
      id,
      kind: !old.has(id) ? "added" : !now.has(id) ? "removed" : "changed",
      before: old.get(id) ?? "",
      after: now.get(id) ?? "",
    }));
}
