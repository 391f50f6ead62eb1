/**
 * The address behind `#`. Every change of it passes one guard, which asks the user before unsaved edits are
 * lost: links, Back and Forward, shortcuts, the palette, `push`, `replace`, and typed addresses.
 */
import type { Component } from "svelte";

import { confirmLoss, losesEdits } from "./unsaved.svelte";

type Loader = () => Promise<{ default: Component<any> }>;

/** A page: how it is loaded, and the content until then. */
export interface Route {
  asyncComponent: Loader;
  loadingComponent: Component;
  props?: Record<string, unknown>;
}

/** An entry of the browser's history: its address, and its number in the order of entries. */
interface Place {
  hash: string;
  position: number;
}

class Router {
  #place = $state.raw<Place>({ hash: location.hash, position: 0 });
  #full = $derived(this.#place.hash.slice(1) || "/");
  /** The path of the page. */
  location = $derived(this.#full.split("?")[0]!);
  querystring = $derived(this.#full.split("?")[1] ?? "");
  /** The next change of the address was agreed to, or puts the address back. */
  #expected = false;

  constructor() {
    this.#place = this.#present();
    addEventListener("hashchange", () => void this.#meet());
    // A step between two history entries of the same address causes no `hashchange`.
    addEventListener("popstate", () => {
      if (location.hash === this.#place.hash) this.#place = this.#present();
    });
  }

  /** Show another address instead of the present one, unless its edits must stay. */
  async replace(path: string): Promise<void> {
    const hash = `#${path}`;
    if (losesEdits(this.#place.hash, hash) && !(await confirmLoss())) return;
    history.replaceState(history.state, "", hash);
    this.#place = this.#present();
  }

  /** Follow a change of the address, or put it back until the user agrees to lose edits. */
  async #meet(): Promise<void> {
    const to = this.#present();
    if (this.#expected || !losesEdits(this.#place.hash, to.hash)) {
      this.#expected = false;
      this.#place = to;
      return;
    }
    const steps = to.position - this.#place.position;
    this.#expected = true;
    history.go(-steps);
    if (!(await confirmLoss())) return;
    this.#expected = true;
    history.go(steps);
  }

  /** Return the present entry of the history. A new one gets the number behind the last one. */
  #present(): Place {
    const state = history.state as { position?: number } | null;
    const position = state?.position ?? this.#place.position + 1;
    if (state?.position === undefined) history.replaceState({ ...state, position }, "");
    return { hash: location.hash, position };
  }
}

export const router = new Router();

/** Open a page; the present one stays in the history. */
export async function push(path: string): Promise<void> {
  location.hash = path;
}

/** Open a page in place of the present one. */
export const replace = (path: string): Promise<void> => router.replace(path);
