/** Entities by their keys: found by words, and named where only a key is known. */
import { SvelteMap } from "svelte/reactivity";

import { request } from "../api/client";
import { searchEntities, type SearchEntities, type EntityResponse } from "../api/generated";
import { findEntities, translateNames } from "../features/integrations/names";
import { localization } from "../i18n/index.svelte";
import type { Option } from "./Combobox.svelte";

/** Entities that a search by words shows. */
const FOUND = 30;
/** Milliseconds for which keys are gathered before their entities are asked for. */
const GATHERED = 20;

/** The key of a cached entity, whose texts are in one language. */
const cacheKey = (key: string): string => `${localization.language} ${key}`;

class Entities {
  #known = new SvelteMap<string, EntityResponse | null>();
  #asked = new Set<string>();
  #wanted = new Set<string>();

  /** The entity of a key; undefined until it is known, null when there is none that one sees. */
  get(key: string): EntityResponse | null | undefined {
    const known = this.#known.get(cacheKey(key));
    if (known === undefined) this.#want(key);
    return known;
  }

  /** Return `Kitchen · Temperature`, or the key until the entity is loaded. */
  name(key: string): string {
    const found = this.get(key);
    return found ? titleOf(found) : key;
  }

  async find(words: string, wanted: SearchEntities = {}): Promise<EntityResponse[]> {
    const rows = await findEntities({ ...wanted, keyword: words, page_size: FOUND, page_number: 1 });
    for (const row of rows) this.#known.set(cacheKey(row.entity_key), row);
    return rows;
  }

  #want(key: string): void {
    if (this.#asked.has(cacheKey(key)) || !key || key.includes("*") || key.includes("#{")) return;
    this.#asked.add(cacheKey(key));
    if (this.#wanted.size === 0) setTimeout(() => void this.#learn(), GATHERED);
    this.#wanted.add(key);
  }

  async #learn(): Promise<void> {
    const keys = [...this.#wanted];
    this.#wanted.clear();
    try {
      const found = await request(
        searchEntities({ body: { entity_keys: keys, page_size: keys.length, page_number: 1 } }),
      );
      const rows = await translateNames("content" in found ? found.content : found);
      const byKey = new Map(rows.map((row) => [row.entity_key, row]));
      for (const key of keys) this.#known.set(cacheKey(key), byKey.get(key) ?? null);
    } catch {
      for (const key of keys) this.#asked.delete(cacheKey(key)); // the key is shown; asked again the next time
    }
  }
}

export const entities = new Entities();

export function titleOf(entity: { device_name?: string | null; entity_name: string }): string {
  return entity.device_name ? `${entity.device_name} · ${entity.entity_name}` : entity.entity_name;
}

export function optionOf(entity: EntityResponse): Option {
  return { value: entity.entity_key, label: titleOf(entity), note: entity.entity_key };
}
