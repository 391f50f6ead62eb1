/** All rows of a list, for an action on each row. */

/** Rows of one call. */
export const PAGE = 500;

interface Options {
  /** Rows after which collecting stops. */
  most: number;
  /** Returns true when the rows are no longer needed, such as after a change of the filters. */
  isCancelled: () => boolean;
  /** Called with the number of rows so far. */
  onprogress: (count: number) => void;
}

/**
 * Return the rows of all pages of `load(page, size)`, each once; null when cancelled. A caller gets all rows or
 * none, so that no action runs on a part of the user's selection.
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
