/** Lists, a page at a time. */

export interface Page<T> {
  page_size: number;
  page_number: number;
  total: number;
  content: T[];
}

/** The page in an answer: some operations answer a bare list when no page was asked for. */
export function pageOf<T>(found: T[] | Page<T>): Page<T> {
  if (!Array.isArray(found)) return found;
  return { page_size: found.length, page_number: 1, total: found.length, content: found };
}

/** All rows of an answer, whichever it is. */
export function rowsOf<T>(found: T[] | Page<T>): T[] {
  return pageOf(found).content;
}
