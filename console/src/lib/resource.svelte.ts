/** Data that a page loads, with the error and a retry. */
import { untrack } from "svelte";

import { connection } from "../live/connection.svelte";

interface Options {
  /** Milliseconds between two loads while the page is looked at; never, unless given. */
  every?: number;
}

/**
 * Data that `load` fetches, at once and whenever a state that `load` reads before its first `await`
 * changes. The old data stay during a reload; `error` is set when they are out of date.
 *
 * Create it when a component is initialized (it uses `$effect`), and show it with `Resource.svelte`.
 */
export class Resource<T> {
  data = $state.raw<T>();
  error = $state.raw<unknown>(null);
  loading = $state(true);
  #load: () => Promise<T>;
  #latest = 0;

  constructor(load: () => Promise<T>, { every }: Options = {}) {
    this.#load = load;
    $effect(() => {
      void this.reload();
      if (!every) return;
      const timer = setInterval(() => document.hidden || void this.reload(), every);
      return () => clearInterval(timer);
    });
    // A load that failed without a connection is repeated after the reconnect.
    $effect(() => {
      if (connection.returns && untrack(() => this.error)) void this.reload();
    });
    $effect(() => () => void (this.#latest += 1));
  }

  /** Load again. An answer that comes after a newer question is dropped. */
  reload = async (): Promise<void> => {
    const mine = ++this.#latest;
    const asked = this.#load();
    this.loading = true;
    try {
      const data = await asked;
      if (mine !== this.#latest) return;
      this.data = data;
      this.error = null;
    } catch (failure) {
      if (mine === this.#latest) this.error = failure;
    } finally {
      if (mine === this.#latest) this.loading = false;
    }
  };
}
