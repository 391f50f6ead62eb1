/** A list whose newest rows come by themselves, and older ones when they are asked for. */
import { Resource } from "./resource.svelte";
import { toasts } from "./toasts.svelte";

interface Page<T> {
  content: T[];
  next_key?: string | null;
}
interface Options<T> {
  /** Returns a key that identifies a row. */
  key: (row: T) => string;
  /** Milliseconds between two looks at the newest rows. */
  every: number;
  /** The subject of the list; the list is loaded again when it changes. */
  of: () => unknown;
}

/** Made where a component begins; `first` is shown with `Resource.svelte`, as what `rows` gives. */
export class NewestRows<T> {
  first: Resource<Page<T>>;
  busy = $state(false);
  #older = $state.raw<T[]>([]);
  #next = $state<string | null>();
  #page: (next_key?: string) => Promise<Page<T>>;
  #options: Options<T>;
  rows = $derived.by(() => this.#joined(this.first.data?.content ?? []));
  /** Leads to older rows, when there are any. */
  next = $derived.by(() => (this.#next === undefined ? this.first.data?.next_key : this.#next));

  constructor(page: (next_key?: string) => Promise<Page<T>>, options: Options<T>) {
    this.#page = page;
    this.#options = options;
    this.first = new Resource(async () => {
      const found = await page();
      if (this.#older.length) this.#older = this.#joined(found.content);
      return found;
    }, options);
    $effect(() => {
      options.of();
      this.#older = [];
      this.#next = undefined;
    });
  }

  more = async (): Promise<void> => {
    const of = this.#options.of();
    this.busy = true;
    try {
      const found = await this.#page(this.next ?? undefined);
      if (of !== this.#options.of()) return;
      this.#older = [...this.rows, ...found.content];
      this.#next = found.next_key ?? null;
    } catch (failure) {
      toasts.fail(failure);
    } finally {
      this.busy = false;
    }
  };

  /** The newest rows before the others that are known. */
  #joined(newest: T[]): T[] {
    const { key } = this.#options;
    const there = new Set(newest.map(key));
    return [...newest, ...this.#older.filter((one) => !there.has(key(one)))];
  }
}
