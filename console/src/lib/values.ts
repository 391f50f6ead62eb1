/** Formats and parses values of entities. */
import { formatNumber, t } from "../i18n/index.svelte";

type ValueType = "STRING" | "LONG" | "DOUBLE" | "BOOLEAN" | "BINARY" | "OBJECT";
export interface Member {
  key: string;
  name: string;
  value_type: ValueType;
  value_attribute: { [key: string]: unknown };
  description?: string | null;
}

/** The names of an enumeration by value, if it is one. */
export function enumNames(attribute: Record<string, unknown>): Record<string, string> | null {
  return attribute.enum && typeof attribute.enum === "object" ? (attribute.enum as Record<string, string>) : null;
}

export function unitOf(attribute: Record<string, unknown>): string {
  return typeof attribute.unit === "string" ? attribute.unit : "";
}

interface Shown {
  /** Digits behind the point; as they come, unless given. */
  digits?: number | null;
  /** False where the unit stands elsewhere. */
  withUnit?: boolean;
}

/** A value as people read it: by its name where it has one, else with its unit. */
export function formatValue(value: unknown, attribute: Record<string, unknown> = {}, { digits = null, withUnit = true }: Shown = {}): string {
  if (value === null || value === undefined || value === "") return "–";
  const names = enumNames(attribute);
  if (names) return names[String(value)] ?? String(value);
  if (typeof value === "boolean") return t(value ? "tsl.true" : "tsl.false");
  if (typeof value === "object") return JSON.stringify(value);
  const text = typeof value === "number" ? formatNumber(value, digits) : String(value);
  const unit = unitOf(attribute);
  return unit && withUnit ? `${text} ${unit}` : text;
}

/** Parse JSON. Throws an error in the user's language when the text is not valid. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(t("code.no-json"));
  }
}

/** Parse a typed value of a type. Throws an error when the text is not valid. */
export function parseValue(text: string, type: ValueType): unknown {
  switch (type) {
    case "LONG":
    case "DOUBLE": {
      const value = Number(text);
      if (text.trim() === "" || !Number.isFinite(value)) throw new Error(t("entities.no-number", { text }));
      return value;
    }
    case "BOOLEAN":
      return text === "true";
    case "OBJECT":
      return parseJson(text);
    default:
      return text;
  }
}
