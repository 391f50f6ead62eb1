/** History for charts, and what comes live behind it. */
import type { HistoryItem } from "../../api/generated";

export interface Points {
  /** Seconds, ascending. */
  x: number[];
  y: (number | null)[];
}

/** Rows of several entities, in any order, as points of each. */
export function pointsOf(rows: HistoryItem[], ids: string[]): Map<string, Points> {
  const found = new Map(ids.map((id) => [id, { x: [], y: [] } as Points]));
  for (const row of [...rows].sort((one, other) => one.timestamp - other.timestamp)) {
    const points = found.get(row.entity_id);
    const y = numeric(row.value);
    if (!points || y === null) continue;
    points.x.push(row.timestamp / 1000);
    points.y.push(y);
  }
  return found;
}

/** With a value more, and without those before `from` (ms); the very same when it is not newer. */
export function appended(points: Points, value: unknown, at: number, from: number): Points {
  const y = numeric(value);
  const last = points.x.at(-1) ?? 0;
  if (y === null || at / 1000 <= last) return points;
  const first = points.x.findIndex((x) => x >= from / 1000);
  const start = first < 0 ? points.x.length : first;
  return { x: [...points.x.slice(start), at / 1000], y: [...points.y.slice(start), y] };
}

function numeric(value: unknown): number | null {
  if (typeof value === "boolean") return value ? 1 : 0;
  const found = typeof value === "string" && value.trim() === "" ? NaN : Number(value);
  return Number.isFinite(found) ? found : null;
}

/** Where a value stands between two bounds, from 0 to 1. */
export function share(value: unknown, least: number, most: number): number {
  const found = numeric(value);
  if (found === null || most <= least) return 0;
  return Math.min(1, Math.max(0, (found - least) / (most - least)));
}
