/** Places of errors in JSON: finds `properties[3].dataSpec.validator.min` in its text. */
import { syntaxTree } from "@codemirror/language";
import type { Diagnostic } from "@codemirror/lint";
import type { EditorState } from "@codemirror/state";

import type { Fault } from "../api/client";

type SyntaxNode = ReturnType<typeof syntaxTree>["topNode"];

/** Letters that are underlined at most. */
const MOST = 80;

function splitPath(path: string): (string | number)[] {
  return [...path.matchAll(/([^.[\]]+)|\[(\d+)\]/g)].map(([, name, index]) => (index === undefined ? name! : Number(index)));
}

function findChild(node: SyntaxNode, step: string | number, state: EditorState): SyntaxNode | null {
  if (typeof step === "number") return node.name === "Array" ? (listElements(node)[step] ?? null) : null;
  for (let child = node.firstChild; child; child = child.nextSibling) {
    const name = child.getChild("PropertyName");
    if (child.name === "Property" && name && JSON.parse(state.sliceDoc(name.from, name.to)) === step) return child.lastChild;
  }
  return null;
}

function listElements(array: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = array.firstChild; child; child = child.nextSibling) if (!"[],".includes(child.name) && child.name !== "⚠") found.push(child);
  return found;
}

/** Faults at the values that they are about, or at the nearest that there is. */
export function toDiagnostics(state: EditorState, faults: Fault[]): Diagnostic[] {
  const top = syntaxTree(state).topNode.firstChild;
  return faults.map(({ field, reason }) => {
    let node = top;
    for (const step of splitPath(field)) {
      const next: SyntaxNode | null = node && findChild(node, step, state);
      if (!next) break;
      node = next;
    }
    const from = node?.from ?? 0;
    return { from, to: Math.min(node?.to ?? from, from + MOST), severity: "error", message: `${field}: ${reason}` };
  });
}
