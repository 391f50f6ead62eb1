/** All rows of a list, for an action on each of them. */

/** Rows of one call. */
export const PAGE = 500;

interface Options {
  /** Rows after which collecting stops. */
  most: number;
  /** Whether the rows are wanted no longer, such as after a change of the filters. */
  isCancelled: () => boolean;
  /** Called with the number of rows so far. */
  onprogress: (count: number) => void;
}

/**
 * Return the rows that `load(page, size)` gives, each once; null when cancelled. A caller has all of them or
 * none, so that no action runs on a part of what the user selected.
 */
export async function collectRows<T extends { id: string }>(
  load: (page: number, size: number) => Promise<{ content: T[] }>,
  { most, isCancelled, onprogress }: Options,
): Promise<T[] | null> {
  const rows = new Map<string, T>();
  for (let page = 1; ; page += 1) {
    const { content } = await load(page, PAGE);
    if (isCancelled()) return null;
    for (const row of content) if (rows.size < most) rows.set(row.id, row);
    onprogress(rows.size);
    if (content.length < PAGE || page * PAGE >= most) return [...rows.values()];
  }
}
