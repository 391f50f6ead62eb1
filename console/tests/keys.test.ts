// Key presses that are shortcuts, and key presses that belong to the focused control.
import assert from "node:assert/strict";
import { test } from "node:test";

import { activateOnce, isCommand, isComposing, isTypingTarget } from "../src/lib/keys.ts";

/** A key press whose path of nodes matches, one after the other, these selectors. */
function press(key: string, path: string[] = [], more: object = {}) {
  const calls: string[] = [];
  const matches = (own: string) => (selector: string) => own !== "" && selector.split(", ").some((one) => one.split(",").some((part) => part.startsWith(own)));
  const event = {
    key,
    ctrlKey: false,
    metaKey: false,
    altKey: false,
    isComposing: false,
    composedPath: () => [...path.map((own) => ({ matches: matches(own) })), {}],
    preventDefault: () => calls.push("prevented"),
    stopImmediatePropagation: () => calls.push("stopped"),
    ...more,
  };
  return { event: event as unknown as KeyboardEvent, calls };
}

test("letters in a control inside a shadow tree are text", () => {
  assert.equal(isTypingTarget(press("g", ["[contenteditable]", ""]).event), true);
  assert.equal(isTypingTarget(press("g", ["input"]).event), true);
  assert.equal(isTypingTarget(press("g", ["[role='menu']"]).event), true);
  assert.equal(isTypingTarget(press("g", ["button"]).event), false);
});

test("keys of an input method are text, wherever they are pressed", () => {
  assert.equal(isComposing(press("Enter", [], { isComposing: true }).event), true);
  assert.equal(isComposing(press("Enter", [], { keyCode: 229 }).event), true);
  assert.equal(isTypingTarget(press("a", [], { isComposing: true }).event), true);
});

test("a command is Ctrl or Cmd with a letter, which nobody has handled", () => {
  assert.equal(isCommand(press("K", ["input"], { ctrlKey: true }).event, "k"), true);
  assert.equal(isCommand(press("k", [], { metaKey: true }).event, "k"), true);
  for (const more of [{}, { ctrlKey: true, altKey: true }, { ctrlKey: true, defaultPrevented: true }, { ctrlKey: true, isComposing: true }])
    assert.equal(isCommand(press("k", [], more).event, "k"), false);
});

test("a held Enter or Space activates once, and still writes lines and blanks", () => {
  assert.deepEqual(calls("Enter", ["input"]), ["prevented", "stopped"]);
  assert.deepEqual(calls("Enter", ["button"]), ["prevented", "stopped"]);
  assert.deepEqual(calls(" ", ["button"]), ["prevented", "stopped"]);
  assert.deepEqual(calls("Enter", ["textarea"]), []);
  assert.deepEqual(calls("Enter", ["[contenteditable]"]), []);
  assert.deepEqual(calls(" ", ["input"]), []);
  assert.deepEqual(calls("x", ["button"]), []);
  assert.deepEqual(calls("Enter", ["button"], false), []);
});

function calls(key: string, path: string[], repeat = true): string[] {
  const pressed = press(key, path, { repeat });
  activateOnce(pressed.event);
  return pressed.calls;
}
