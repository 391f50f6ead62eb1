/** Searches for names that the console translates, while the platform stores other ones. */
import type { Page } from "../api/pages";

/** Return the stored names whose translations contain `text`, without those that contain it themselves. */
export function storedNames(translations: Record<string, string>, text: string): string[] {
  const contains = (name: string) => name.toLowerCase().includes(text.toLowerCase());
  return Object.keys(translations).filter((stored) => contains(translations[stored]!) && !contains(stored));
}

/** Return a page of the list that has `rows` at its end. */
export function appendRows<T>(page: Page<T>, rows: T[]): Page<T> {
  const first = Math.max(0, (page.page_number - 1) * page.page_size - page.total);
  const appended = rows.slice(first, first + page.page_size - page.content.length);
  return { ...page, total: page.total + rows.length, content: [...page.content, ...appended] };
}
