/** Values of the audit log that contain ids of other objects. */

/** Maximum ids of a value that are shown. */
const MAX_SHOWN = 100;
/** Fields whose values are ids. */
const FIELDS = ["roleIds", "userIds", "menuIds", "resources"] as const;
export type IdField = (typeof FIELDS)[number];

export interface Ids {
  shown: string[];
  /** Number of ids that are not shown. */
  others: number;
}

export function isIdField(field: string): field is IdField {
  return FIELDS.some((one) => one === field);
}

/** Return the ids of a value, which is a list, or the beginning of a longer list with its length. */
export function idsIn(value: unknown): Ids {
  const { count, first } = Array.isArray(value) ? { count: value.length, first: value } : (value as { count: number; first: unknown[] });
  const shown = first.slice(0, MAX_SHOWN).map(String);
  return { shown, others: count - shown.length };
}
