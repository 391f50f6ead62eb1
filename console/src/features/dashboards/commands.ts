/** Values and inputs that a command sends. */

export interface Input {
  key: string;
  name: string;
  required: boolean;
  numeric: boolean;
  /** Values with their labels, where only some are possible. */
  options: [string, string][] | null;
  read: (text: string) => unknown;
}

interface Described {
  entity_key: string;
  entity_name: string;
  entity_value_type: string;
  entity_value_attribute: Record<string, unknown>;
}

/** Names of the two values of a BOOLEAN. */
export type Switch = Record<"true" | "false", string>;

/** Return the inputs that the user is asked for: those of a service, or the value of a property. */
export function inputsOf(key: string, entity: Described & { entity_type: string }, children: Described[], names: Switch): Input[] {
  if (entity.entity_type !== "SERVICE") return [input({ ...entity, entity_key: key }, true, names)];
  return children.map((child) => input(child, !child.entity_value_attribute.optional, names));
}

function input(entity: Described, required: boolean, switched: Switch): Input {
  const { entity_key: key, entity_name: name, entity_value_type: type } = entity;
  const numeric = type === "LONG" || type === "DOUBLE";
  const names = entity.entity_value_attribute.enum as Record<string, string> | undefined;
  const options: [string, string][] | null = names ? Object.entries(names) : type === "BOOLEAN" ? Object.entries(switched) : null;
  const read = (text: string): unknown => {
    if (type === "BOOLEAN") return text === "true";
    return numeric && text.trim() !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
  };
  return { key, name, required, numeric, options, read };
}

/** Return the values that a command with a fixed value sends. JSON is parsed, and a map of keys is used as it is. */
export function exchangeOf(key: string, send: string): Record<string, unknown> {
  let value: unknown = send;
  try {
    value = JSON.parse(send);
  } catch {
    // it is text
  }
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isMap) return { [key]: value };
  return Object.fromEntries(Object.entries(value as object).map(([name, one]) => [name.startsWith(key) ? name : `${key}.${name}`, one as unknown]));
}
