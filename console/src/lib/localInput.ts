/** Moments (s) as inputs of the browser have them: in its own time zone. */

/** Return a moment (s) to the minute or to the second; "" for a value that is not a number. */
export function toLocalInput(seconds: unknown, to: "minute" | "second" = "minute"): string {
  if (typeof seconds !== "number") return "";
  const away = new Date(seconds * 1_000).getTimezoneOffset() * 60;
  return new Date((seconds - away) * 1_000).toISOString().slice(0, to === "minute" ? 16 : 19);
}

/** Return the entered moment (s); null for an empty input. */
export function fromLocalInput(text: string): number | null {
  return text ? Math.floor(new Date(text).getTime() / 1_000) : null;
}
