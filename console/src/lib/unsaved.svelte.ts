/** Unsaved edits. The router asks the user before every change of the address that would lose them. */
import { session } from "../api/session.svelte";
import { t } from "../i18n/index.svelte";
import { confirm } from "./confirm.svelte";

interface Guard {
  isDirty: () => boolean;
  /** The edits outlive a change of the tab in the address. */
  keepsTabs: boolean;
}

const guards = new Set<Guard>();

/** Guard edits; called where a component begins (it uses `$effect`). */
export function guard(isDirty: () => boolean, { keepsTabs = false } = {}): void {
  $effect(() => {
    const entry = { isDirty, keepsTabs };
    guards.add(entry);
    return () => void guards.delete(entry);
  });
}

/** Return whether anything is unsaved. */
export function hasUnsaved(): boolean {
  return session.user !== null && [...guards].some((one) => one.isDirty());
}

/** Return whether the way from one address to another loses edits: that to another page or tab. */
export function losesEdits(from: string, to: string): boolean {
  const [fromPath, fromQuery] = from.split("?");
  const [toPath, toQuery] = to.split("?");
  const tab = (query = "") => new URLSearchParams(query).get("tab") ?? "";
  if (fromPath !== toPath) return hasUnsaved();
  return tab(fromQuery) !== tab(toQuery) && [...guards].some((one) => !one.keepsTabs && one.isDirty());
}

/** Ask whether unsaved edits may be lost; true when the user agrees. */
export function confirmLoss(): Promise<boolean> {
  return confirm({ title: t("unsaved.title"), text: t("unsaved.text"), action: t("unsaved.leave") });
}

/** Return whether the page may be left: nothing is unsaved, or the user agrees to lose it. */
export async function mayLeave(): Promise<boolean> {
  return !hasUnsaved() || (await confirmLoss());
}

session.hasUnsaved = hasUnsaved;
addEventListener("beforeunload", (event) => {
  if (hasUnsaved()) event.preventDefault();
});
