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
function shortly<T extends Keyed>({ propertyKey, ...rest }: T): T {
  const key = last(propertyKey ?? "");
  return (key && key !== last(rest.id ?? "") ? { ...rest, propertyKey: key } : rest) as T;
}

/** A stored document as people edit it: without the property keys that repeat ids. */
export function withoutRepeatedKeys(document: TslDocument): TslDocument {
  return {
    ...document,
    properties: document.properties?.map(shortly),
    events: document.events?.map((one) => ({ ...one, outputs: one.outputs?.map(shortly) })),
    services: document.services?.map((one) => ({ ...one, inputs: one.inputs?.map(shortly), outputs: one.outputs?.map(shortly) })),
  };
}

export const laidOut = (document: TslDocument): string => JSON.stringify(document, null, 2);

/** The document that a text is; null while it is no JSON object. */
export function read(text: string): TslDocument | null {
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

/** An id after a member was renamed: the member has the new one, and what is inside of it begins with it. */
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

/** Return a document after a property was renamed: parameters that refer to it, or to what is inside of it, follow. */
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

/** Return members without one and all that is inside of it. */
export function withoutMember<T extends Entry>(entries: T[], id: string): T[] {
  return withoutMembersOf(entries, id).filter((one) => one.id !== id);
}

/** Return members without what is inside of one. */
export function withoutMembersOf<T extends Entry>(entries: T[], id: string): T[] {
  return entries.filter((one) => !one.id?.startsWith(`${id}.`));
}

export interface Difference {
  id: string;
  kind: "added" | "removed" | "changed";
  before: string;
  after: string;
}

function flat(document: TslDocument): Map<string, string> {
  const all: [string, { id?: string }][] = [
    ...(document.properties ?? []).map((one): [string, PropertySpec] => ["properties", one]),
    ...(document.events ?? []).map((one): [string, { id?: string }] => ["events", one]),
    ...(document.services ?? []).map((one): [string, { id?: string }] => ["services", one]),
  ];
  return new Map(all.map(([kind, one]) => [`${kind}.${one.id}`, JSON.stringify(one, null, 2)]));
}

/** What one document has that another has not, member by member. */
export function differences(before: TslDocument, after: TslDocument): Difference[] {
  const [old, now] = [flat(before), flat(after)];
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
