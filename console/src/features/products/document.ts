/** A product as the editor has it: the text of its TSL, and where faults stand in it. */
import { syntaxTree } from "@codemirror/language";
import { json } from "@codemirror/lang-json";
import { EditorState } from "@codemirror/state";
import type { Diagnostic } from "@codemirror/lint";

import type { Fault } from "../../api/client";
import type { PropertySpec, TslDocument } from "../../api/generated";

type SyntaxNode = ReturnType<typeof syntaxTree>["topNode"];

export const EMPTY: TslDocument = {
  version: "v1.0",
  properties: [{ id: "temperature", name: "Temperature", accessMode: "R", dataSpec: { dataType: "FLOAT", unitName: "°C", fractionDigits: 1 } }],
  events: [],
  services: [],
};

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

/** `properties[3].dataSpec.validator.min` as its steps. */
function steps(path: string): (string | number)[] {
  return [...path.matchAll(/([^.[\]]+)|\[(\d+)\]/g)].map(([, name, index]) => (index === undefined ? name! : Number(index)));
}

function inside(node: SyntaxNode, step: string | number, text: string): SyntaxNode | null {
  if (typeof step === "number") return node.name === "Array" ? (elements(node)[step] ?? null) : null;
  for (let child = node.firstChild; child; child = child.nextSibling) {
    const name = child.getChild("PropertyName");
    if (child.name === "Property" && name && JSON.parse(text.slice(name.from, name.to)) === step) return child.lastChild;
  }
  return null;
}

function elements(array: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = array.firstChild; child; child = child.nextSibling) if (!"[],".includes(child.name) && child.name !== "⚠") found.push(child);
  return found;
}

/** Faults at the values that they are about, or at the nearest that there is. */
export function marks(text: string, faults: Fault[]): Diagnostic[] {
  const state = EditorState.create({ doc: text, extensions: json() });
  const top = syntaxTree(state).topNode.firstChild;
  return faults
    .filter(({ field }) => field === "tsl" || field.startsWith("tsl."))
    .map(({ field, reason }) => {
      let node = top;
      for (const step of steps(field.slice("tsl.".length))) {
        const next: SyntaxNode | null = node && inside(node, step, text);
        if (!next) break;
        node = next;
      }
      const from = node?.from ?? 0;
      return { from, to: Math.min(node?.to ?? from + 1, from + 80), severity: "error", message: `${field.slice("tsl.".length)}: ${reason}` };
    });
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
