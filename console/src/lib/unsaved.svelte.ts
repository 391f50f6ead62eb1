/** Work that is lost with its page: whoever leaves by a link, a key or the browser's buttons is asked first. */
import { router } from "svelte-spa-router";

import { t } from "../i18n/index.svelte";
import { confirm } from "./confirm.svelte";

let unsaved: () => boolean = () => false;
/** The address that was agreed to. */
let agreed = "";

/** Called where a component begins (it uses `$effect`): `lost` says whether leaving destroys anything now. */
export function guard(lost: () => boolean): void {
  $effect(() => {
    unsaved = lost;
    return () => {
      if (unsaved === lost) unsaved = () => false;
    };
  });
}

function asksFirst(wanted: string): boolean {
  const path = wanted.slice(1).split("?")[0] || "/";
  return wanted !== agreed && path !== router.location && unsaved();
}

/** Heard before the router hears of it: the address stays as it is until somebody has agreed. */
async function meet(event: Event): Promise<void> {
  const wanted = location.hash;
  const asks = asksFirst(wanted);
  agreed = "";
  if (!asks) return;
  event.stopImmediatePropagation();
  const here = router.querystring ? `${router.location}?${router.querystring}` : router.location;
  history.replaceState(history.state, "", `#${here}`);
  if (!(await confirm({ title: t("unsaved.title"), text: t("unsaved.text"), action: t("unsaved.leave") }))) return;
  agreed = wanted;
  location.hash = wanted;
}

addEventListener("hashchange", (event) => void meet(event), { capture: true });
addEventListener("beforeunload", (event) => {
  if (unsaved()) event.preventDefault();
});
