/** Values of properties over time. */
import { request, requestFile, saveFile } from "../../api/client";
import { exportEntityHistory, searchEntityHistory, type DeviceEntity, type HistoryItem } from "../../api/generated";

/** Values of one property that are read at once, the newest ones. */
export const MOST = 10_000;

export interface Past {
  entity: DeviceEntity;
  /** Ascending in time. */
  items: HistoryItem[];
  /** True if the time range has more values than were loaded. */
  cut: boolean;
}

/** Load the values of a property between two moments (ms). */
export async function loadHistory(entity: DeviceEntity, from: number, until: number): Promise<Past> {
  const found = await request(
    searchEntityHistory({
      body: { entity_id: entity.id, start_timestamp: from, end_timestamp: until, page_size: MOST, page_number: 1 },
    }),
  );
  const [content, total] = "content" in found ? [found.content, found.total] : [found, found.length];
  return { entity, items: content.toSorted((one, other) => one.timestamp - other.timestamp), cut: total > content.length };
}

export interface Row {
  at: number;
  /** By entity id. */
  values: Record<string, unknown>;
}

/** Several pasts as one table, the newest row first. */
export function joinRows(pasts: Past[]): Row[] {
  const found = new Map<number, Row>();
  for (const { entity, items } of pasts) {
    for (const item of items) {
      const row = found.get(item.timestamp) ?? { at: item.timestamp, values: {} };
      row.values[entity.id] = item.value;
      found.set(item.timestamp, row);
    }
  }
  return [...found.values()].sort((one, other) => other.at - one.at);
}

/** Save what properties were as CSV, times in the zone of this computer. */
export async function saveCsv(name: string, entities: DeviceEntity[], from: number, until: number): Promise<void> {
  const time_zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const query = { ids: entities.map((one) => Number(one.id)), start_timestamp: from, end_timestamp: until, time_zone };
  saveFile(await requestFile(exportEntityHistory({ query, parseAs: "blob" })), `${name}.csv`);
}
