/** Which key presses are shortcuts, and which belong to the control or dialog that has the focus. */

/** Controls that use letters themselves: text is typed there, or a letter selects an option. */
const TYPING = [
  "input, textarea, select, [contenteditable]:not([contenteditable='false'])",
  ...["textbox", "searchbox", "combobox", "spinbutton", "listbox", "menu"].map((role) => `[role='${role}']`),
].join();
/** `keyCode` of a key press that an input method (IME) has consumed. */
const IME = 229;

/** Return whether an input method composes a character: its Enter only accepts the character. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === IME;
}

/**
 * Whether a key press is typed into a control. `event.target` names the host of a shadow tree (the code
 * editors live in one); the path names the control inside of it.
 */
export function isTypingTarget(event: KeyboardEvent): boolean {
  return isComposing(event) || event.composedPath().some((node) => (node as Partial<Element>).matches?.(TYPING));
}

/** Return whether a dialog is open: it receives the keys instead of the page behind it. */
export function isDialogOpen(): boolean {
  return document.querySelector("[role='dialog'], [role='alertdialog']") !== null;
}

/** Return whether a key press may start a shortcut of one letter: no field receives it, and it is not held down. */
export function isShortcut(event: KeyboardEvent): boolean {
  const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
  return !hasModifier && !event.repeat && !event.defaultPrevented && !isTypingTarget(event) && !isDialogOpen();
}

/** Return whether Ctrl or Cmd is held with `key` and no other modifier. Works in text fields, but not in dialogs. */
export function isCommand(event: KeyboardEvent, key: string): boolean {
  const isPressed = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === key;
  return isPressed && !event.defaultPrevented && !isComposing(event);
}

/** Controls in which a held Enter starts a new line each time. */
const LINES = "textarea, [contenteditable]:not([contenteditable='false'])";

/**
 * Let a held key activate controls once. An Enter that opens a dialog repeats in it: it would send the form
 * there, or choose the first item of a menu, before anybody has read it.
 */
export function activateOnce(event: KeyboardEvent): void {
  if (!event.repeat || (event.key !== "Enter" && event.key !== " ")) return;
  const types = event.key === "Enter" ? event.composedPath().some((node) => (node as Partial<Element>).matches?.(LINES)) : isTypingTarget(event);
  if (types) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}
