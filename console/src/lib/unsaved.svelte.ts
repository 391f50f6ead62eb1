/** Work that is lost with its page: whoever leaves by a link, or closes the page, is asked first. */
import { router } from "svelte-spa-router";

import { t } from "../i18n/index.svelte";
import { confirm } from "./confirm.svelte";

let unsaved: () => boolean = () => false;

/** Called where a component begins (it uses `$effect`): `lost` says whether leaving destroys anything now. */
export function guard(lost: () => boolean): void {
  $effect(() => {
    unsaved = lost;
    return () => {
      if (unsaved === lost) unsaved = () => false;
    };
  });
}

/** The page of the console that a click leads to in this tab; undefined when it leads to none, or stays here. */
function pageOf(event: MouseEvent): string | undefined {
  const link = event.target instanceof Element && event.target.closest<HTMLAnchorElement>('a[href^="#/"]');
  if (!link || link.target || event.ctrlKey || event.metaKey || event.shiftKey) return undefined;
  return link.hash.slice(1).split("?")[0] === router.location ? undefined : link.hash;
}

async function meet(event: MouseEvent): Promise<void> {
  const page = pageOf(event);
  if (!page || !unsaved()) return;
  event.preventDefault();
  if (await confirm({ title: t("unsaved.title"), text: t("unsaved.text"), action: t("unsaved.leave") })) location.hash = page;
}

addEventListener("click", (event) => void meet(event), { capture: true });
addEventListener("beforeunload", (event) => {
  if (unsaved()) event.preventDefault();
});
