/**
 * Widgets as a canvas keeps them: ours, and those of other consoles.
 *
 * Ours: `{type: "thingway", kind, pos: {x, y, w, h}, settings}`. `pos`, in 12 columns, is where other
 * consoles keep it, too. What another console made is never rewritten: moved, it has another `pos`
 * and is else the same; drawn, it is translated for the moment.
 */

export const COLUMNS = 12;
/** Most widgets of a canvas. */
export const MOST = 120;
const TYPE = "thingway";

export const KINDS = ["value", "line", "bar", "gauge", "status", "switch", "command", "table", "text", "image"] as const;
export type Kind = (typeof KINDS)[number];
export const AGGREGATES = ["LAST", "AVG", "MIN", "MAX", "SUM", "COUNT"] as const;
export type Aggregate = (typeof AGGREGATES)[number];
export const TONES = ["good", "warn", "bad", "quiet"] as const;
export type Tone = (typeof TONES)[number];
export const STYLES = ["line", "area", "bars"] as const;
const DAY = 86_400_000;

/** An entity that is shown. */
export interface Source {
  id: string;
  key: string;
}

/** The label and color of a state. */
export interface State {
  value: string;
  label: string;
  tone: Tone;
}

export interface Settings {
  title: string;
  entities: Source[];
  /** Milliseconds until now. */
  span: number;
  style: (typeof STYLES)[number];
  aggregate: Aggregate;
  /** Digits behind the point; null: as they come. */
  digits: number | null;
  least: number;
  most: number;
  states: State[];
  /** The value that a command sends, as JSON or text; empty asks the user. */
  send: string;
  /** True if a command asks for confirmation. */
  ask: boolean;
  text: string;
  /** The address of a picture. */
  picture: string;
}

export interface Place {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Widget {
  /** Of this page alone. */
  id: number;
  /** The id of the platform; undefined for a new widget. */
  stored?: string;
  place: Place;
  /** Null: nothing here can draw it. */
  kind: Kind | null;
  settings: Settings;
  /** Another console's, as it made it. */
  foreign?: Record<string, unknown>;
}

export const DEFAULTS: Settings = {
  title: "",
  entities: [],
  span: DAY,
  style: "line",
  aggregate: "AVG",
  digits: null,
  least: 0,
  most: 100,
  states: [],
  send: "",
  ask: false,
  text: "",
  picture: "",
};

interface About {
  /** Columns and rows that a new one takes. */
  size: [number, number];
  /** The fields of its form, in addition to the title. */
  fields: (keyof Settings)[];
  /** Most entities that it shows. */
  entities: number;
}

export const ABOUT: Record<Kind, About> = {
  value: { size: [3, 2], fields: ["entities", "digits"], entities: 1 },
  line: { size: [6, 4], fields: ["entities", "span", "style"], entities: 8 },
  bar: { size: [6, 4], fields: ["entities", "aggregate", "span", "digits"], entities: 12 },
  gauge: { size: [3, 3], fields: ["entities", "least", "most", "digits"], entities: 1 },
  status: { size: [3, 2], fields: ["entities", "states"], entities: 1 },
  switch: { size: [3, 2], fields: ["entities"], entities: 1 },
  command: { size: [3, 2], fields: ["entities", "send", "ask"], entities: 1 },
  table: { size: [6, 3], fields: ["entities", "digits"], entities: 50 },
  text: { size: [4, 2], fields: ["text"], entities: 0 },
  image: { size: [4, 4], fields: ["picture"], entities: 0 },
};

let last = 0;

/** The widgets of a canvas, in the order in which they are kept. */
export function readWidgets(stored: { widget_id: string; data: Record<string, unknown> }[]): Widget[] {
  return stored.map(({ widget_id, data }) => readWidget(widget_id, data));
}

/** As they are read and reached by keys: row by row. */
export function inOrder(widgets: Widget[]): Widget[] {
  return [...widgets].sort((one, other) => one.place.y - other.place.y || one.place.x - other.place.x);
}

function readWidget(stored: string, data: Record<string, unknown>): Widget {
  const id = ++last;
  const place = placeIn(data.pos);
  const kind = KINDS.find((one) => one === data.kind);
  if (data.type === TYPE && kind) {
    return { id, stored, place, kind, settings: { ...DEFAULTS, ...record(data.settings) } as Settings };
  }
  return { id, stored, place, ...readForeignWidget(data), foreign: data };
}

export function createWidget(kind: Kind, settings: Settings, widgets: Widget[]): Widget {
  const [w, h] = ABOUT[kind].size;
  return { id: ++last, kind, settings, place: findFreePlace(w, h, widgets.map((widget) => widget.place)) };
}

/** The first place of this size where nothing is, row by row. */
function findFreePlace(w: number, h: number, taken: Place[]): Place {
  for (let y = 0; ; y += 1) {
    for (let x = 0; x + w <= COLUMNS; x += 1) {
      if (!taken.some((one) => x < one.x + one.w && one.x < x + w && y < one.y + one.h && one.y < y + h)) return { x, y, w, h };
    }
  }
}

/** Return a widget as it is stored. */
export function writeWidget(widget: Widget): { widget_id?: string; data: Record<string, unknown> } {
  const { stored, foreign, kind, settings, place } = widget;
  const data = foreign ? movedTo(foreign, place) : { type: TYPE, kind, pos: place, settings: requiredSettings(widget, settings) };
  return stored ? { widget_id: stored, data } : { data };
}

/** Settings that this kind has, and that are not as by default. */
function requiredSettings(widget: Widget, settings: Settings): Partial<Settings> {
  const names: (keyof Settings)[] = ["title", ...(widget.kind ? ABOUT[widget.kind].fields : [])];
  return Object.fromEntries(
    names.filter((name) => settings[name] !== DEFAULTS[name]).map((name) => [name, settings[name]]),
  );
}

function movedTo(data: Record<string, unknown>, place: Place): Record<string, unknown> {
  const was = placeIn(data.pos);
  const same = was.x === place.x && was.y === place.y && was.w === place.w && was.h === place.h;
  return same ? data : { ...data, pos: { ...record(data.pos), ...place } };
}

/** Ids that a save names: those of our widgets, and of the former ones those that others' still have. */
export function entityIds(widgets: Widget[], former: string[]): string[] {
  const ours = widgets.filter((one) => !one.foreign).flatMap((one) => one.settings.entities.map(({ id }) => id));
  const texts = widgets.filter((one) => one.foreign).map((one) => JSON.stringify(one.foreign));
  const theirs = former.filter((id) => texts.some((text) => text.includes(`"${id}"`)));
  return [...new Set([...ours, ...theirs])];
}

function placeIn(pos: unknown): Place {
  const found = record(pos);
  const whole = (name: string, least: number, most: number, otherwise: number): number => {
    const value = Number(found[name] ?? otherwise);
    return Number.isFinite(value) ? Math.min(most, Math.max(least, Math.round(value))) : otherwise;
  };
  const w = whole("w", 1, COLUMNS, 3);
  return { x: whole("x", 0, COLUMNS - w, 0), y: whole("y", 0, 10_000, 0), w, h: whole("h", 1, 100, 2) };
}

/** How a widget of another console is drawn here, as well as it can be. */
function readForeignWidget(data: Record<string, unknown>): { kind: Kind | null; settings: Settings } {
  const config = record(data.config);
  const several = list(config.entityPosition).map((one) => record(one).entity);
  const entities = [...list(config.entity ?? config.entityList), ...several].flatMap(source);
  const span = typeof config.time === "number" && config.time > 0 ? config.time : DAY;
  const title = String(config.title ?? config.label ?? "");
  const aggregate = AGGREGATES.find((one) => one === config.metrics) ?? "LAST";
  const found = { ...DEFAULTS, title, entities, span, aggregate };
  const settings = entities.length > 0 ? found : { ...found, entities: [] };
  const of = (kind: Kind, more: Partial<Settings> = {}) => ({
    kind: entities.length > 0 ? kind : null,
    settings: { ...settings, ...more },
  });
  switch (data.type) {
    case "dataCard":
    case "text":
    case "iconRemaining":
      return of("value");
    case "gaugeChart":
    case "progress":
      return of("gauge");
    case "switch":
      return of("switch");
    case "trigger":
      return of("command");
    case "lineChart":
      return of("line");
    case "areaChart":
      return of("line", { style: "area" });
    case "barChart":
    case "horizonBarChart":
      return of("line", { style: "bars" });
    case "radarChart":
      return of("bar");
    case "image":
      return readForeignPicture(config, settings);
    default:
      return { kind: null, settings };
  }
}

function readForeignPicture(config: Record<string, unknown>, settings: Settings): { kind: Kind | null; settings: Settings } {
  const picture = String(record(config.file).url ?? config.url ?? "");
  return { kind: picture ? "image" : null, settings: { ...settings, picture } };
}

function source(entity: unknown): Source[] {
  const { value, rawData } = record(entity);
  const key = record(rawData).entityKey;
  return value !== undefined && typeof key === "string" ? [{ id: String(value), key }] : [];
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
}
