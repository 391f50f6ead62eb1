/** Points of charts: loaded history, followed by live values. */
import type { HistoryItem } from "../../api/generated";

export interface Points {
  /** Milliseconds, ascending, with a value each. */
  times: number[];
  values: number[];
}

/** Rows of several entities, in any order, as points of each. */
export function pointsOf(rows: HistoryItem[], ids: string[]): Map<string, Points> {
  const found = new Map(ids.map((id) => [id, { times: [], values: [] } as Points]));
  for (const row of [...rows].sort((one, other) => one.timestamp - other.timestamp)) {
    const points = found.get(row.entity_id);
    const value = toNumber(row.value);
    if (!points || value === null) continue;
    points.times.push(row.timestamp);
    points.values.push(value);
  }
  return found;
}

export interface Change {
  value: unknown;
  /** ms. */
  timestamp: number;
}

/** With newer values behind, and without those before `from` (ms); the very same when none is newer. */
export function appendChanges(points: Points, changes: Change[], from: number): Points {
  let last = points.times.at(-1) ?? 0;
  const newer: [number, number][] = [];
  for (const { value, timestamp } of changes) {
    const found = toNumber(value);
    if (found === null || timestamp <= last) continue;
    newer.push([timestamp, found]);
    last = timestamp;
  }
  if (newer.length === 0) return points;
  const first = points.times.findIndex((time) => time >= from);
  const start = first < 0 ? points.times.length : first;
  return {
    times: [...points.times.slice(start), ...newer.map(([time]) => time)],
    values: [...points.values.slice(start), ...newer.map(([, value]) => value)],
  };
}

function toNumber(value: unknown): number | null {
  if (typeof value === "boolean") return value ? 1 : 0;
  const isText = typeof value === "string" && value.trim() !== "";
  const found = typeof value === "number" || isText ? Number(value) : NaN;
  return Number.isFinite(found) ? found : null;
}

/** Where a value stands between two bounds, from 0 to 1. */
export function fractionOfRange(value: unknown, least: number, most: number): number {
  const found = toNumber(value);
  if (found === null || most <= least) return 0;
  return Math.min(1, Math.max(0, (found - least) / (most - least)));
}
