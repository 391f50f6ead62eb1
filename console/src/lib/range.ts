/** A span of time that a page looks at: the last so many milliseconds, or between two moments (ms). */
import { query } from "./query.svelte";

export type Range = { last: number } | { from: number; until: number };

const MINUTE = 60_000;
export const LASTS = {
  "15m": 15 * MINUTE,
  hour: 60 * MINUTE,
  "6h": 360 * MINUTE,
  day: 1_440 * MINUTE,
  week: 10_080 * MINUTE,
  month: 43_200 * MINUTE,
} as const;

/** Both ends of a range, as of now. */
export function bounds(range: Range): { from: number; until: number } {
  if ("from" in range) return range;
  const until = Date.now();
  return { from: until - range.last, until };
}

/** The range in the page's address (`last`, or `from` and `until`), else the one given. */
export function rangeInQuery(otherwise: number): Range {
  const [last, from, until] = ["last", "from", "until"].map((name) => Number(query.get(name))) as [number, number, number];
  if (from > 0 && until > from) return { from, until };
  return { last: last > 0 ? last : otherwise };
}

export function putRangeInQuery(range: Range): void {
  query.set({ last: null, from: null, until: null, ...range });
}
