/** History for charts, and what comes live behind it. */
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
    const value = numeric(row.value);
    if (!points || value === null) continue;
    points.times.push(row.timestamp);
    points.values.push(value);
  }
  return found;
}

/** With a value more, and without those before `from` (ms); the very same when it is not newer. */
export function appended(points: Points, value: unknown, at: number, from: number): Points {
  const found = numeric(value);
  if (found === null || at <= (points.times.at(-1) ?? 0)) return points;
  const first = points.times.findIndex((time) => time >= from);
  const start = first < 0 ? points.times.length : first;
  return { times: [...points.times.slice(start), at], values: [...points.values.slice(start), found] };
}

function numeric(value: unknown): number | null {
  if (typeof value === "boolean") return value ? 1 : 0;
  const isText = typeof value === "string" && value.trim() !== "";
  const found = typeof value === "number" || isText ? Number(value) : NaN;
  return Number.isFinite(found) ? found : null;
}

/** Where a value stands between two bounds, from 0 to 1. */
export function share(value: unknown, least: number, most: number): number {
  const found = numeric(value);
  if (found === null || most <= least) return 0;
  return Math.min(1, Math.max(0, (found - least) / (most - least)));
}
