/** Values of entities: how they read, and how what was typed becomes one. */
import { number, t } from "../../i18n/index.svelte";

type ValueType = "STRING" | "LONG" | "DOUBLE" | "BOOLEAN" | "BINARY" | "OBJECT";
export interface Member {
  key: string;
  name: string;
  value_type: ValueType;
  value_attribute: { [key: string]: unknown };
  description?: string | null;
}

/** The names of an enumeration by value, if it is one. */
export function choices(attribute: Record<string, unknown>): Record<string, string> | null {
  return attribute.enum && typeof attribute.enum === "object" ? (attribute.enum as Record<string, string>) : null;
}

export function shownValue(value: unknown, attribute: Record<string, unknown> = {}): string {
  if (value === null || value === undefined || value === "") return "–";
  const names = choices(attribute);
  if (names) return names[String(value)] ?? String(value);
  const unit = typeof attribute.unit === "string" ? ` ${attribute.unit}` : "";
  if (typeof value === "number") return `${number(value)}${unit}`;
  return typeof value === "object" ? JSON.stringify(value) : `${String(value)}${unit}`;
}

/** What was typed as a value of a type. Throws where it is none. */
export function typed(text: string, type: ValueType): unknown {
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
      return JSON.parse(text);
    default:
      return text;
  }
}
