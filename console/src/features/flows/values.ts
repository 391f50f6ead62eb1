/** Values of parameters as they are typed: JSON where it is JSON, else text. */

/** `30` and `true` are what they look like, `"30"` is a text; all else is text as it stands. */
export function asValue(text: string): unknown {
  if (!looksLikeJson(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The text that `asValue` reads as this value. */
export function asText(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value !== "string") return JSON.stringify(value);
  return asValue(value) === value ? value : JSON.stringify(value);
}

function looksLikeJson(text: string): boolean {
  return /^(\s*)([-\d[{"]|true\b|false\b)/.test(text);
}
