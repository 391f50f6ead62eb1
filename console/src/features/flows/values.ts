/** Values of parameters as they are typed: JSON where it is JSON, else text. */

/** Parse a value: `30` and `true` are JSON, `"30"` is a text, and other input is text. */
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
