/** Texts, numbers and times in the language of the user. */
import { en } from "./en";

export type Key = keyof typeof en;
export type Messages = Record<Key, string>;
export type Language = "en" | "zh";

const LANGUAGES: Record<Language, () => Promise<Messages>> = {
  en: () => Promise.resolve(en),
  zh: async () => (await import("./zh")).zh,
};
const STORAGE_KEY = "thingway.language";
const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
  ["second", 1_000],
];
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

class Localization {
  language = $state<Language>("en");
  messages = $state.raw<Messages>(en);

  /** The browser's variant of the language, such as `en-GB`: numbers and times follow it. */
  readonly locale = $derived(navigator.languages.find((tag) => tag.split("-")[0] === this.language && isLocale(tag)) ?? this.language);

  async load(language: Language): Promise<void> {
    this.messages = await LANGUAGES[language]();
    this.language = language;
    document.documentElement.lang = language;
  }

  /** Load a language, and remember it for the next visit. */
  async select(language: Language): Promise<void> {
    localStorage.setItem(STORAGE_KEY, language);
    await this.load(language);
  }
}

/** Return whether a tag of `navigator.languages` is valid: some systems report theirs, such as `en-US@posix`. */
function isLocale(tag: string): boolean {
  try {
    return Intl.getCanonicalLocales(tag).length > 0;
  } catch {
    return false;
  }
}

/** Return the language that the user selected, else the browser's language, else English. */
export function preferredLanguage(): Language {
  const wanted = localStorage.getItem(STORAGE_KEY) ?? navigator.language.slice(0, 2);
  return wanted in LANGUAGES ? (wanted as Language) : "en";
}

export const localization = new Localization();

/** Translate a key. `{name}` is replaced by a value; `{count|device|devices}` by a word for one or for several. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  return localization.messages[key].replace(/\{(\w+)(?:\|(.*?)\|(.*?))?\}/g, (_, name: string, singular?: string, plural?: string) => {
    const value = values[name];
    if (singular !== undefined) return value === 1 ? singular : plural!;
    return typeof value === "number" ? formatNumber(value) : (value ?? "");
  });
}

/** Translate a key that may be unknown, such as one with a code of the platform. */
export function translateIfKnown(key: string): string | undefined {
  return (localization.messages as Record<string, string | undefined>)[key];
}

/** Format a number with so many decimal places, by default up to three. */
export function formatNumber(value: number, digits: number | null = null): string {
  const options = digits === null ? {} : { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat(localization.locale, options).format(value);
}

/** Format a size (bytes) in the largest unit that it reaches. */
export function formatBytes(bytes: number): string {
  const power = Math.min(SIZES.length - 1, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  return `${formatNumber(Math.round((bytes / 1024 ** power) * 10) / 10)} ${SIZES[power]}`;
}

/** Format alternatives, such as `a, b or c`. */
export function formatAlternatives(texts: string[]): string {
  return new Intl.ListFormat(localization.locale, { type: "disjunction" }).format(texts);
}

/** Format a list, such as `a, b and c`. */
export function formatList(texts: string[]): string {
  return new Intl.ListFormat(localization.locale).format(texts);
}

/** Format a moment (ms), to the second. */
export function formatTime(at: number): string {
  return new Intl.DateTimeFormat(localization.locale, { dateStyle: "short", timeStyle: "medium" }).format(at);
}

/** Format a duration (s) in the largest unit that gives a whole number. */
export function formatDuration(seconds: number): string {
  const [unit, length] = UNITS.find(([, ms]) => seconds && (seconds * 1_000) % ms === 0) ?? ["second", 1_000];
  return new Intl.NumberFormat(localization.locale, { style: "unit", unit, unitDisplay: "long" }).format((seconds * 1_000) / length);
}

/** Format how long before `now` a moment (ms) was. */
export function formatAgo(at: number, now: number): string {
  if (now - at < 1_000) return t("time.now");
  const format = new Intl.RelativeTimeFormat(localization.locale, { numeric: "auto" });
  const [unit, length] = UNITS.find(([, ms]) => now - at >= ms) ?? ["second", 1_000];
  return format.format(-Math.floor(Math.max(0, now - at) / length), unit);
}
