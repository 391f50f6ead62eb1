/** Data of the widgets of a dashboard: entities, loaded values and live values. */
import { createContext } from "svelte";
import { SvelteMap } from "svelte/reactivity";

import { request } from "../../api/client";
import { getEntityStatuses, type CanvasEntity, type LatestValue } from "../../api/generated";
import { t } from "../../i18n/index.svelte";
import { titleOf } from "../../lib/entities.svelte";
import { formatValue, unitOf } from "../../lib/values";
import { live, type Now } from "../../live/socket.svelte";
import type { Settings, Source, Widget } from "./widgets";

export class Board {
  widgets = $state.raw<Widget[]>([]);
  /** One that is being set up: its values are wanted, too. */
  preview = $state.raw<Settings | null>(null);
  /** Why the last values are unknown. */
  error = $state.raw<unknown>(null);
  #entities = new SvelteMap<string, CanvasEntity>();
  #latest = $state.raw<Record<string, LatestValue>>({});
  #sources = $derived(unique(this.widgets.flatMap((widget) => widget.settings.entities)));
  #ids = $derived(this.#sources.map((one) => one.id).join(","));
  #keys = $derived(this.#sources.map((one) => one.key).join("\n"));

  /** Call it where a component begins. */
  constructor() {
    $effect(() => (this.#keys ? live.watch(this.#keys.split("\n")) : undefined));
    // Also load again after a reconnect: changes during the interruption are not sent again.
    $effect(() => {
      void live.connections;
      if (this.#ids) void this.#load(this.#ids.split(","));
    });
  }

  know(entities: CanvasEntity[]): void {
    for (const entity of entities) this.#entities.set(entity.entity_id, entity);
  }

  entity(source: Source | undefined): CanvasEntity | undefined {
    return source && this.#entities.get(source.id);
  }

  /** Return `Kitchen · Temperature`; of an entity that the user may not see, or that is deleted, neither name nor key. */
  name(source: Source): string {
    const entity = this.entity(source);
    return entity ? titleOf(entity) : t("boards.unavailable");
  }

  title(settings: Settings): string {
    const [first] = settings.entities;
    return settings.title || (first && settings.entities.length === 1 ? this.name(first) : "");
  }

  unit(source: Source | undefined): string {
    return unitOf(this.entity(source)?.entity_value_attribute ?? {});
  }

  now(source: Source | undefined): Now {
    return live.newest(source?.key, source && this.#latest[source.id]);
  }

  /** A value as people read it. */
  shown(source: Source | undefined, value: unknown, digits: number | null = null, withUnit = true): string {
    return formatValue(value, this.entity(source)?.entity_value_attribute, { digits, withUnit });
  }

  async #load(entity_ids: string[]): Promise<void> {
    try {
      this.#latest = await request(getEntityStatuses({ body: { entity_ids } }));
      this.error = null;
    } catch (failure) {
      this.error = failure;
    }
  }
}

function unique(sources: Source[]): Source[] {
  return [...new Map(sources.map((one) => [one.id, one])).values()];
}

export const [board, setBoard] = createContext<Board>();
