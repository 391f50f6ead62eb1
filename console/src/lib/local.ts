/** Moments (s) as inputs of the browser have them: in its own time zone. */

/** To the minute, or to the second; "" for what is no number. */
export function local(seconds: unknown, to: "minute" | "second" = "minute"): string {
  if (typeof seconds !== "number") return "";
  const away = new Date(seconds * 1_000).getTimezoneOffset() * 60;
  return new Date((seconds - away) * 1_000).toISOString().slice(0, to === "minute" ? 16 : 19);
}

/** What was entered; null when nothing was. */
export function seconds(text: string): number | null {
  return text ? Math.floor(new Date(text).getTime() / 1_000) : null;
}
