/** A flow while somebody works on it. */
import { readableFaults, request } from "../../api/client";
import {
  disableFlow,
  enableFlow,
  getDesign,
  listComponents,
  saveDesign,
  validateDesign,
  type DesignFault,
  type DesignResponse,
  type TraceItem,
} from "../../api/generated";
import { localization } from "../../i18n/index.svelte";
import { type Kind, readCatalogue, translateKind } from "./catalogue";
import {
  nodesBefore,
  componentOf,
  withEdge,
  type Design,
  type DesignNode,
  freeBranch,
  newId,
  type NodeData,
  type Place,
  readDesign,
  withData,
  withNode,
  writeDesign,
} from "./design";
import { startHistory, addState, type History, redo, undo } from "./history";
import { placeMissing, arrangeNodes, WIDTH } from "./layout";
import type { Words } from "./nodes.zh";

/** Milliseconds without a change after which a design is checked. */
const PATIENCE = 400;
/** Pixels between a node and the one that is added behind it. */
const GAP = 90;

export type Facts = Omit<DesignResponse, "design_data">;

/** A design that is looked at instead of the newest one. */
export interface Old {
  version: number;
  design: Design;
}

export class Editing {
  facts = $state.raw<Facts>({ id: "", name: "", remark: "", enabled: false, version: 0 });
  history = $state.raw<History<Design>>(startHistory({ nodes: [], edges: [] }));
  old = $state.raw<Old | null>(null);
  /** Why the design cannot run. */
  reasons = $state.raw<DesignFault[]>([]);
  checked = $state(false);
  /** Steps of nodes in the run or test that is shown. */
  trace = $state.raw<TraceItem[]>([]);
  /** The node whose form is open. */
  chosen = $state("");
  #saved = $state.raw({ text: "", name: "", remark: "" });

  design = $derived(this.old?.design ?? this.history.present);
  node = $derived(this.design.nodes.find((node) => node.id === this.chosen));
  text = $derived(writeDesign(this.history.present, this.#saved.text));
  dirty = $derived(
    this.text !== this.#saved.text || this.facts.name !== this.#saved.name || this.facts.remark !== this.#saved.remark,
  );
  /** True if leaving loses edits; an untouched new flow has none. */
  unsaved = $derived.by(() => {
    const touched = this.history.past.length > 0 || this.facts.name !== this.#saved.name || this.facts.remark !== this.#saved.remark;
    return this.dirty && (this.facts.id !== "" || touched);
  });
  readonly = $derived.by(() => this.old !== null || !this.may);

  constructor(
    readonly kinds: Map<string, Kind>,
    readonly may: boolean,
  ) {}

  static async open(id: string | undefined, name: string, may: boolean, imported?: Design): Promise<Editing> {
    const [groups, shown] = await Promise.all([
      request(listComponents()),
      id ? request(getDesign({ path: { flow_id: Number(id) } })) : undefined,
    ]);
    const words: Record<string, Words> = localization.language === "zh" ? (await import("./nodes.zh")).nodes : {};
    const kinds = [...readCatalogue(groups).values()].map((kind) => translateKind(kind, words[kind.name]));
    const editing = new Editing(new Map(kinds.map((kind) => [kind.name, kind])), may);
    if (shown) await editing.#take(shown);
    else {
      editing.facts = { ...editing.facts, name };
      editing.#saved = { ...editing.#saved, name };
      if (imported) editing.history = addState(editing.history, await placeMissing(imported));
    }
    return editing;
  }

  async #take({ design_data, ...facts }: DesignResponse): Promise<void> {
    const design = readDesign(design_data);
    this.facts = facts;
    this.history = startHistory(await placeMissing(design));
    this.#saved = { text: writeDesign(design, design_data), name: facts.name, remark: facts.remark };
  }

  kindOf(node: DesignNode): Kind | undefined {
    return this.kinds.get(componentOf(node));
  }

  change(design: Design, mark = ""): void {
    if (!this.readonly) this.history = addState(this.history, design, mark);
  }

  undo(): void {
    if (!this.readonly) this.history = undo(this.history);
  }

  redo(): void {
    if (!this.readonly) this.history = redo(this.history);
  }

  setData(id: string, data: Partial<NodeData>, field: string): void {
    this.change(withData(this.design, id, data), `${id} ${field}`);
  }

  /** Add a node: where it was dropped, else behind the one that is chosen, and connected to it or to its first free branch. */
  add(kind: Kind, place?: Place): void {
    const last = place ? undefined : this.node;
    const free = place ?? this.#free(last);
    const parameters = {};
    const id = newId(this.design);
    const node = { id, componentName: kind.name, position: free, data: { nodeName: kind.title, parameters } };
    let design = withNode(this.design, node);
    if (last && kind.group !== "entry") {
      const handle = componentOf(last) === "choice" ? freeBranch(design, last) : null;
      if (handle !== undefined) design = withEdge(design, { source: last.id, target: id, sourceHandle: handle });
    }
    this.change(design);
    this.chosen = id;
  }

  /** Where no node stands: behind one, else below all. */
  #free(node: DesignNode | undefined): Place {
    const places = this.design.nodes.map((one) => one.position ?? { x: 0, y: 0 });
    if (!node?.position) return { x: 0, y: Math.max(-120, ...places.map((one) => one.y)) + 120 };
    const place = { x: node.position.x + WIDTH + GAP, y: node.position.y };
    while (places.some((one) => Math.abs(one.x - place.x) < WIDTH && Math.abs(one.y - place.y) < 90)) place.y += 100;
    return place;
  }

  async tidy(): Promise<void> {
    this.change(await arrangeNodes(this.design));
  }

  before(id: string): DesignNode[] {
    return nodesBefore(this.design, id);
  }

  /** The reasons of a node, or of none (`null`). */
  reasonsOf(id: string | null): DesignFault[] {
    if (this.old) return [];
    const known = (one: DesignFault): boolean => this.design.nodes.some((node) => node.id === one.node_id);
    return this.reasons.filter((one) => (id === null ? !known(one) : one.node_id === id));
  }

  /** Validate the design a moment after each change; call the returned function to stop. */
  watch(): () => void {
    const text = this.text;
    this.checked = false;
    if (!this.may) return () => undefined;
    const timer = setTimeout(() => void this.#check(text), PATIENCE);
    return () => clearTimeout(timer);
  }

  async #check(text: string): Promise<void> {
    const { data } = await validateDesign({ body: { design_data: text } });
    if (text !== this.text || !data) return;
    this.reasons = readableFaults(data.detail ?? []);
    this.checked = true;
  }

  /** Save, as a new flow if it is one. Throws `Failure`. */
  async save(): Promise<string> {
    const { id, name, remark, version } = this.facts;
    const text = this.text;
    const of = id ? { id, version } : {};
    const saved = await request(saveDesign({ body: { ...of, name, remark, design_data: text } }));
    const shown = await request(getDesign({ path: { flow_id: Number(saved.id) } }));
    const { design_data, ...facts } = shown;
    // A saved secret is now a placeholder; later edits are kept.
    if (text === this.text && design_data !== text) this.history = addState(this.history, readDesign(design_data), "saved");
    this.facts = { ...facts, name: this.facts.name, remark: this.facts.remark };
    this.#saved = { text: text === this.text ? this.text : design_data, name, remark };
    return saved.id;
  }

  async switch(enabled: boolean): Promise<void> {
    const path = { flow_id: Number(this.facts.id) };
    await request(enabled ? enableFlow({ path }) : disableFlow({ path }));
    this.facts = { ...this.facts, enabled, stopped: enabled ? undefined : this.facts.stopped };
  }

  async look(version: number): Promise<void> {
    if (version === this.facts.version && !this.dirty) {
      this.old = null;
      return;
    }
    this.old = { version, design: await this.version(version) };
  }

  async version(version: number): Promise<Design> {
    const shown = await request(getDesign({ path: { flow_id: Number(this.facts.id) }, query: { version: String(version) } }));
    return placeMissing(readDesign(shown.design_data));
  }

  /** Go on from the old version that is looked at; it is saved as the newest. */
  restore(): void {
    const design = this.old?.design;
    this.old = null;
    if (design) this.change(design);
  }
}
