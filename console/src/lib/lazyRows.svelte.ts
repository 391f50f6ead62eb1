/** A long list that loads only its visible pages. */
import { SvelteMap } from "svelte/reactivity";

interface Page<T> {
  content: T[];
  total: number;
}

const SIZE = 100;
/** Milliseconds that the reader must rest at a place before it is loaded. */
const REST = 60;

/** Rows of `load(page, size)`, from page 1 on. They are loaded again when a state changes that `load` reads. */
export class LazyRows<T> {
  total = $state<number>();
  error = $state.raw<unknown>(null);
  #pages = new SvelteMap<number, T[] | null>();
  #load: (page: number, size: number) => Promise<Page<T>>;
  #version = 0;
  #timer = 0;
  #seen: [number, number] = [0, SIZE - 1];

  constructor(load: (page: number, size: number) => Promise<Page<T>>) {
    this.#load = load;
    $effect(() => {
      this.#seen = [0, SIZE - 1];
      void this.reload();
    });
  }

  /** The row at an index (from 0); undefined while it is on its way. */
  at(index: number): T | undefined {
    return this.#pages.get(Math.floor(index / SIZE))?.[index % SIZE];
  }

  /** Say which rows are seen. */
  see(first: number, last: number): void {
    this.#seen = [first, last];
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fill(), REST);
  }

  /** Load the visible rows again; the old rows stay until the new ones arrive. */
  reload = async (): Promise<void> => {
    this.#version += 1;
    const first = Math.floor(this.#seen[0] / SIZE);
    await this.#fetch(first, true);
  };

  #fill(): void {
    const [first, last] = this.#seen.map((index) => Math.floor(index / SIZE)) as [number, number];
    for (let page = first; page <= last; page += 1) if (!this.#pages.has(page)) void this.#fetch(page, false);
  }

  async #fetch(page: number, anew: boolean): Promise<void> {
    const mine = this.#version;
    const asked = this.#load(page + 1, SIZE);
    if (!anew) this.#pages.set(page, null);
    try {
      const { content, total } = await asked;
      if (mine !== this.#version) return;
      if (anew) this.#pages.clear();
      this.#pages.set(page, content);
      this.total = total;
      this.error = null;
      if (anew) this.#fill();
    } catch (failure) {
      if (mine !== this.#version) return;
      this.#pages.delete(page);
      this.error = failure;
    }
  }
}
