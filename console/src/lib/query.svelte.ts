/** The query of the page's address. It holds the filters, so that a link shows the same rows. */
import { replace, router } from "./router.svelte";

class Query {
  #all = $derived(new URLSearchParams(router.querystring ?? ""));

  /** The value of a parameter; "" when there is none. */
  get(name: string): string {
    return this.#all.get(name) ?? "";
  }

  /** The page of a list that is seen, from 1 on. */
  get page(): number {
    return Number(this.get("page")) || 1;
  }

  /** Values of a parameter that stands several times. */
  list(name: string): string[] {
    return this.#all.getAll(name);
  }

  /** Change parameters; "", null and an empty list take one away. Nothing is added to the browser's history. */
  set(changes: Record<string, string | number | string[] | null>): void {
    const next = new URLSearchParams(this.#all);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      const values = Array.isArray(value) ? value : value === null || value === "" ? [] : [String(value)];
      for (const one of values) next.append(name, one);
    }
    void replace(`${router.location}${next.size ? `?${next}` : ""}`);
  }
}

export const query = new Query();

/** Milliseconds without a key pressed after which it is searched. */
const PATIENCE = 250;

/** Call `work` when nothing has been typed for a moment. */
export function debounce(work: (value: string) => void): (value: string) => void {
  let timer = 0;
  return (value) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(value), PATIENCE);
  };
}
