/** Words, numbers and times in the language of the reader. */
import { en } from "./en";

export type Key = keyof typeof en;
export type Messages = Record<Key, string>;
export type Language = "en" | "zh";

const LANGUAGES: Record<Language, () => Promise<Messages>> = {
  en: () => Promise.resolve(en),
  zh: async () => (await import("./zh")).zh,
};
const KEPT = "thingway.language";
const DIVISIONS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1_000],
];

class Reader {
  language = $state<Language>("en");
  words = $state.raw<Messages>(en);

  /** How numbers and times are written: as the browser says for this language, `en-GB` or `en-US`. */
  readonly locale = $derived(navigator.languages.find((one) => one.split("-")[0] === this.language && isLocale(one)) ?? this.language);

  async choose(language: Language): Promise<void> {
    this.words = await LANGUAGES[language]();
    this.language = language;
    document.documentElement.lang = language;
  }

  /** Choose, and remember it for the next time. */
  async keep(language: Language): Promise<void> {
    localStorage.setItem(KEPT, language);
    await this.choose(language);
  }
}

/** Whether a name that the browser gives is one: some have that of their system, `en-US@posix`. */
function isLocale(name: string): boolean {
  try {
    return Intl.getCanonicalLocales(name).length > 0;
  } catch {
    return false;
  }
}

/** What was chosen before, else the browser's language, else English. */
export function preferred(): Language {
  const wanted = localStorage.getItem(KEPT) ?? navigator.language.slice(0, 2);
  return wanted in LANGUAGES ? (wanted as Language) : "en";
}

export const reader = new Reader();

/** The words for a key; `{name}` in them is replaced. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  return reader.words[key].replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    return typeof value === "number" ? number(value) : (value ?? "");
  });
}

/** The words for a key that may be unknown, such as one made of a code of the platform. */
export function known(key: string): string | undefined {
  return (reader.words as Record<string, string | undefined>)[key];
}

/** With so many digits behind the point, else up to three. */
export function number(value: number, digits: number | null = null): string {
  const some = digits === null ? {} : { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat(reader.locale, some).format(value);
}

/** A moment (ms), to the second. */
export function moment(at: number): string {
  return new Intl.DateTimeFormat(reader.locale, { dateStyle: "short", timeStyle: "medium" }).format(at);
}

/** A length of time (s) in the largest unit that says it in a whole number. */
export function duration(seconds: number): string {
  const [unit, length] = DIVISIONS.find(([, ms]) => seconds && (seconds * 1_000) % ms === 0) ?? ["second", 1_000];
  return new Intl.NumberFormat(reader.locale, { style: "unit", unit, unitDisplay: "long" }).format((seconds * 1_000) / length);
}

/** How long ago a moment (ms) was, as seen at `now`. */
export function ago(at: number, now: number): string {
  const format = new Intl.RelativeTimeFormat(reader.locale, { numeric: "auto" });
  const [unit, length] = DIVISIONS.find(([, ms]) => now - at >= ms) ?? ["second", 1_000];
  return format.format(-Math.floor(Math.max(0, now - at) / length), unit);
}
