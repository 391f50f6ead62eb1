/** The tree of members behind the flat list of a TSL: what forms and tables are made from. */
import type { DataSpec, ParamSpec, PropertySpec } from "../../api/generated";

export interface Member {
  /** By which values are named: `schedule.start`, the property key of the document. */
  id: string;
  /** The last part of the path. */
  key: string;
  name: string;
  description: string;
  spec: DataSpec;
  readable: boolean;
  writable: boolean;
  members: Member[];
  /** The element of an ARRAY. */
  element?: Member;
}

const ITEM = "_item";

function memberOf(entry: PropertySpec | ParamSpec): Member {
  const access = "accessMode" in entry ? (entry.accessMode ?? "R") : "RW";
  const id = entry.propertyKey ?? entry.id ?? "";
  const key = id.slice(id.lastIndexOf(".") + 1);
  return {
    id,
    key,
    name: entry.name || key,
    description: entry.description ?? "",
    spec: entry.dataSpec ?? {},
    readable: access.includes("R"),
    writable: access.includes("W"),
    members: [],
  };
}

/** Members at the top, each with those that it holds. `owner` is the service whose parameters these are. */
export function tree(entries: (PropertySpec | ParamSpec)[] = [], owner = ""): Member[] {
  const members = new Map(entries.map((entry) => [entry.propertyKey ?? entry.id ?? "", memberOf(entry)]));
  const top: Member[] = [];
  for (const member of members.values()) {
    const parent = member.id.slice(0, Math.max(0, member.id.length - member.key.length - 1));
    if (parent === owner) top.push(member);
    else if (member.key === ITEM) setElement(members.get(parent), member);
    else members.get(parent)?.members.push(member);
  }
  for (const member of members.values()) if (member.spec.dataType === "ARRAY") member.element ??= elementOf(member);
  return top;
}

function setElement(array: Member | undefined, element: Member): void {
  if (array) array.element = element;
}

/** Without an `_item`, what an ARRAY says holds for each of its elements, and its sizes for itself. */
function elementOf(array: Member): Member {
  const { min, max } = array.spec.validator ?? {};
  const spec = { ...array.spec, dataType: array.spec.elementDataType ?? "STRING", elementDataType: null, validator: { min, max } };
  return { ...array, spec, members: [], element: undefined };
}

/** Return keys of an ENUM with their names. */
export function choices({ mapping, mappings }: DataSpec): [string, string][] {
  return Object.entries(mapping ?? Object.fromEntries((mappings ?? []).map(({ key, value }) => [key ?? "", value ?? ""])));
}

/** Return the initial value of a form field; undefined is not sent. */
export function initial(member: Member): unknown {
  const { dataType, defaultValue } = member.spec;
  if (dataType === "STRUCT") return Object.fromEntries(member.members.map((one) => [one.key, initial(one)]));
  if (dataType === "ARRAY") return [];
  if (defaultValue === null || defaultValue === undefined) return undefined;
  if (dataType === "BOOL") return defaultValue === "true";
  return dataType === "STRING" || dataType === "ENUM" ? defaultValue : Number(defaultValue);
}

/** Return a form's value without empty fields; undefined when all are empty. */
export function given(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => given(one) ?? null);
  if (value === null || typeof value !== "object") return value ?? undefined;
  const entries = Object.entries(value).map(([key, one]) => [key, given(one)] as const);
  const filled = entries.filter(([, one]) => one !== undefined);
  return filled.length ? Object.fromEntries(filled) : undefined;
}
