/** CodeMirror as the console uses it. */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json, jsonParseLinter } from "@codemirror/lang-json";
import { bracketMatching, foldGutter, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, lintKeymap } from "@codemirror/lint";
import { Compartment, EditorState, StateEffect, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

import type { Fault } from "../api/client";
import { t } from "../i18n/index.svelte";
import { toDiagnostics } from "./diagnostics";

export type Language = "json" | "javascript" | "python" | "text";

/** Languages that few pages need: they are loaded by who does. */
const LATER: Partial<Record<Language, () => Promise<Extension>>> = {
  javascript: async () => (await import("@codemirror/lang-javascript")).javascript(),
  python: async () => (await import("@codemirror/lang-python")).python(),
};

/** Faults are looked for again. */
const marked = StateEffect.define<null>();

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword], color: "var(--strong)" },
  { tag: tags.comment, color: "var(--quiet)" },
]);

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", border: "0" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--accent) 25%, transparent)",
  },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line)" },
});

/** CodeMirror's own texts in the language of the reader, by its English ones. */
const phrases = (): Record<string, string> => ({
  Completions: t("code.completions"),
  Diagnostics: t("code.faults"),
  "No diagnostics": t("code.faults.none"),
  close: t("dialog.close"),
  "Fold line": t("code.fold"),
  "Unfold line": t("code.unfold"),
  unfold: t("code.unfold"),
  "folded code": t("code.folded"),
});

interface Given {
  value: string;
  language: Language;
  label: string;
  readonly: boolean;
  /** The text that a completion inserts. */
  more?: Extension;
}

export interface Editor {
  /** Show another text; does nothing when the text is the same. */
  put(text: string): void;
  /** Show errors at their fields (paths in JSON), in addition to syntax errors. */
  mark(faults: Fault[]): void;
  destroy(): void;
}

/**
 * Replaces the selection with a typed letter. Left to Chromium, it writes the letter with an inline style, which the
 * policy of the page forbids.
 */
const typedOverSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { data, inputType, isComposing } = event;
    const { main, ranges } = view.state.selection;
    if (inputType !== "insertText" || !data || isComposing || main.empty || ranges.length > 1 || view.state.readOnly) return false;
    const insert = () => view.state.update(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true });
    const handlers = view.state.facet(EditorView.inputHandler);
    if (!handlers.some((handle) => handle(view, main.from, main.to, data, insert))) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

/** Create an editor in a shadow tree; `changed` is called with the typed text. */
export function edit(root: ShadowRoot, given: Given, changed: (text: string) => void): Editor {
  let marks: Fault[] = [];
  const language = new Compartment();
  const parse = given.language === "json" ? jsonParseLinter() : () => [];
  const faults = linter(
    ({ state }) => [...(state.doc.length ? parse(view) : []), ...toDiagnostics(state, marks)],
    { needsRefresh: (update) => update.transactions.some((one) => one.effects.some((effect) => effect.is(marked))) },
  );
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: given.value,
      extensions: [
        lineNumbers(),
        foldGutter(),
        lintGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        autocompletion(),
        highlightActiveLine(),
        syntaxHighlighting(colours),
        look,
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": given.label, tabindex: "0" }),
        EditorState.readOnly.of(given.readonly),
        language.of(given.language === "json" ? json() : []),
        given.more ?? [],
        faults,
        typedOverSelection,
        EditorState.phrases.of(phrases()),
        EditorView.updateListener.of((update) => update.docChanged && changed(update.state.doc.toString())),
      ],
    }),
  });
  void LATER[given.language]?.().then((loaded) => view.dispatch({ effects: language.reconfigure(loaded) }));
  return {
    put(text) {
      if (text === view.state.doc.toString()) return;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
    },
    mark(faults) {
      marks = faults;
      view.dispatch({ effects: marked.of(null) });
    },
    destroy: () => view.destroy(),
  };
}
