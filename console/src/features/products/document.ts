/** A product as the editor has it: the text of its TSL. */
import type { PropertySpec, TslDocument } from "../../api/generated";

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
