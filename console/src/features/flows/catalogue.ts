/** The types of nodes, as the platform describes them, and the shapes of their parameters. */
import type { Component as Described } from "../../api/generated";
import type { Words } from "./nodes.zh";

export const GROUPS = ["entry", "control", "action", "external"] as const;
export type Group = (typeof GROUPS)[number];

export interface Kind {
  name: string;
  title: string;
  description: string;
  group: Group;
  testable: boolean;
  parameters: Parameter[];
}

export interface Parameter {
  name: string;
  title: string;
  description: string;
  required: boolean;
  secret: boolean;
  /** A component for it that editors have; empty: its shape says all. */
  ui: string;
  shape: Shape;
}

/** The shape of a value, which decides its form field. */
export type Shape =
  | { kind: "text"; most?: number }
  | { kind: "number"; whole: boolean; least?: number; most?: number }
  | { kind: "boolean" }
  | { kind: "choice"; of: string[] }
  | { kind: "list"; of: Shape; most?: number }
  | { kind: "map" }
  | { kind: "any" }
  | { kind: "object"; fields: Member[] };

export interface Member {
  name: string;
  title: string;
  description: string;
  required: boolean;
  initial: unknown;
  shape: Shape;
}

interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
  enum?: unknown[];
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  maxItems?: number;
}

interface Data {
  component: { name: string; title: string; description: string; type: Group; testable: boolean };
  properties: Record<string, DataProperty>;
  outputProperties: Record<string, DataProperty>;
  schema: Schema;
}

interface DataProperty {
  index: number;
  name: string;
  displayName: string;
  description: string;
  required: boolean;
  secret?: boolean;
  uiComponent?: string;
}

export function readCatalogue(groups: Record<string, Described[]>): Map<string, Kind> {
  const kinds = Object.values(groups).flatMap((rows) => rows.map((row) => readKind(row.data)));
  return new Map(kinds.map((kind) => [kind.name, kind]));
}

/** A node type in the words of another language, as far as there are some. */
export function translateKind(kind: Kind, words: Words | undefined): Kind {
  if (!words) return kind;
  const parameters = kind.parameters.map((one) => {
    const [title = one.title, description = one.description] = words.parameters[one.name] ?? [];
    return { ...one, title, description };
  });
  return { ...kind, title: words.title, description: words.description, parameters };
}

export function readKind(text: string): Kind {
  const { component, properties, outputProperties, schema } = JSON.parse(text) as Data;
  const shapes = members(schema, schema.$defs ?? {});
  const parameters = Object.values({ ...properties, ...outputProperties })
    .sort((one, other) => one.index - other.index)
    .map((one) => ({
      name: one.name,
      title: one.displayName,
      description: one.description,
      required: one.required,
      secret: one.secret === true,
      ui: one.uiComponent ?? "",
      shape: shapes.find((member) => member.name === one.name)?.shape ?? { kind: "any" as const },
    }));
  const { name, title, description, type, testable } = component;
  return { name, title, description, group: type, testable, parameters };
}

function members(schema: Schema, shapes: Record<string, Schema>): Member[] {
  const found = resolveReference(schema, shapes);
  return Object.entries(found.properties ?? {}).map(([name, field]) => ({
    name,
    title: field.title ?? titleFromName(name),
    description: field.description ?? "",
    required: found.required?.includes(name) ?? false,
    initial: field.default ?? null,
    shape: shapeOf(field, shapes),
  }));
}

function shapeOf(schema: Schema, shapes: Record<string, Schema>): Shape {
  const found = resolveReference(schema, shapes);
  if (found.enum) return { kind: "choice", of: found.enum.map(String) };
  switch (found.type) {
    case "string":
      return { kind: "text", most: found.maxLength };
    case "integer":
    case "number":
      return { kind: "number", whole: found.type === "integer", least: found.minimum, most: found.maximum };
    case "boolean":
      return { kind: "boolean" };
    case "array":
      return { kind: "list", of: shapeOf(found.items ?? {}, shapes), most: found.maxItems };
    case "object":
      return found.properties ? { kind: "object", fields: members(found, shapes) } : { kind: "map" };
    default:
      return { kind: "any" };
  }
}

/** Behind a reference, and without the null that an optional field may be: the first that is left. */
function resolveReference(schema: Schema, shapes: Record<string, Schema>): Schema {
  const { $ref, anyOf } = schema;
  if ($ref) return resolveReference(shapes[$ref.slice($ref.lastIndexOf("/") + 1)] ?? {}, shapes);
  const some = anyOf?.find((one) => one.type !== "null");
  return some ? resolveReference(some, shapes) : schema;
}

/** `intervalTimeUnit` as people read it. */
function titleFromName(name: string): string {
  const words = name.replaceAll(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return the initial value of a shape. */
export function initialValue(shape: Shape): unknown {
  switch (shape.kind) {
    case "text":
      return "";
    case "boolean":
      return false;
    case "choice":
      return shape.of[0];
    case "list":
      return [];
    case "map":
      return {};
    case "object":
      return Object.fromEntries(
        shape.fields.filter((one) => one.required).map((one) => [one.name, initialValue(one.shape)]),
      );
    default:
      return null;
  }
}
