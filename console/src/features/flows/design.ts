/** Designs of flows, as editors store them in `design_data`. Fields that are unknown here are kept. */

export interface Place {
  x: number;
  y: number;
}

export interface NodeData {
  nodeName?: string;
  nodeRemark?: string;
  parameters?: Record<string, unknown> | null;
  [other: string]: unknown;
}

export interface DesignNode {
  id: string;
  componentName?: string;
  type?: string;
  position?: Place;
  data: NodeData;
  [other: string]: unknown;
}

export interface DesignEdge {
  id?: string;
  source: string;
  target: string;
  /** Behind a `choice`: the id of the branch. */
  sourceHandle?: string | null;
  [other: string]: unknown;
}

/** Never changed in place: every change makes another one. */
export interface Design {
  nodes: DesignNode[];
  edges: DesignEdge[];
  [other: string]: unknown;
}

/** Names that other editors give to the types of nodes. */
const EDITOR_TYPES: Record<string, string> = {
  timer: "simpleTimer",
  listener: "eventListener",
  ifelse: "choice",
  assigner: "entityAssigner",
  select: "entitySelector",
  service: "serviceInvocation",
};
const LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

export class NotADesign extends Error {}

/** Parse a design. Throws `NotADesign` with the reason. */
export function readDesign(text: string): Design {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    throw new NotADesign("not a JSON object");
  }
  if (!isRecord(found)) throw new NotADesign("not a JSON object");
  const { nodes = [], edges = [] } = found;
  if (!isRecords(nodes)) throw new NotADesign("`nodes` must be an array of objects");
  if (!isRecords(edges)) throw new NotADesign("`edges` must be an array of objects");
  if (nodes.some((node) => typeof node.id !== "string")) throw new NotADesign("each of `nodes` must have an `id`");
  return {
    ...found,
    nodes: nodes.map((node) => ({ ...node, data: isRecord(node.data) ? node.data : {} }) as DesignNode),
    edges: edges as DesignEdge[],
  };
}

/** The text of a design; the very text that it was read from when nothing was changed. */
export function writeDesign(design: Design, before = ""): string {
  const text = JSON.stringify(design);
  return before && JSON.stringify(readDesign(before)) === text ? before : text;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isRecords(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.every(isRecord);
}

export function componentOf(node: DesignNode): string {
  return node.componentName || EDITOR_TYPES[node.type ?? ""] || node.type || "";
}

export function nameOf(node: DesignNode): string {
  return node.data.nodeName || node.id;
}

export function isPlaced(node: DesignNode): boolean {
  return typeof node.position?.x === "number" && typeof node.position.y === "number";
}

/** The places where edges may begin at a node: one without a name, or the branches of a choice. */
export function handlesOf(node: DesignNode): (string | null)[] {
  if (componentOf(node) !== "choice") return [null];
  const { when, otherwise } = branchesOf(node.data.parameters?.choice);
  return [...when.map((branch) => branch.id), ...(otherwise ? [otherwise.id] : [])];
}

/** The first branch of a choice that leads nowhere. */
export function freeBranch(design: Design, node: DesignNode): string | null | undefined {
  return handlesOf(node).find((handle) => !design.edges.some((edge) => edge.source === node.id && edge.sourceHandle === handle));
}

export interface Comparison {
  key?: unknown;
  operator?: string;
  value?: unknown;
}

export interface Branch {
  id: string;
  logicOperator?: "AND" | "OR";
  expressionType?: string;
  conditions: { id?: string; expressionValue: Comparison | string; [other: string]: unknown }[];
  [other: string]: unknown;
}

export interface Branches {
  when: Branch[];
  otherwise?: { id: string } | null;
}

export function branchesOf(choice: unknown): Branches {
  const found = isRecord(choice) ? choice : {};
  return {
    ...found,
    when: isRecords(found.when) ? (found.when as unknown as Branch[]) : [],
    otherwise: isRecord(found.otherwise) ? (found.otherwise as { id: string }) : null,
  };
}

/** An id that no node has. */
export function newId(design: Design, prefix = "node"): string {
  const taken = new Set(design.nodes.map((node) => node.id));
  for (;;) {
    const bytes = crypto.getRandomValues(new Uint8Array(8));
    const id = `${prefix}_${[...bytes].map((byte) => LETTERS[byte % LETTERS.length]).join("")}`;
    if (!taken.has(id)) return id;
  }
}

export function withNode(design: Design, node: DesignNode): Design {
  return { ...design, nodes: [...design.nodes, node] };
}

/** Edges that began at a branch which the choice has no longer go with it. */
export function withData(design: Design, id: string, data: Partial<NodeData>): Design {
  const old = design.nodes.find((node) => node.id === id);
  if (!old) return design;
  const node = { ...old, data: { ...old.data, ...data } };
  const left = new Set(handlesOf(node));
  const gone = new Set(handlesOf(old).filter((handle) => !left.has(handle)));
  return {
    ...design,
    nodes: design.nodes.map((one) => (one === old ? node : one)),
    edges: design.edges.filter((edge) => edge.source !== id || !gone.has(edge.sourceHandle ?? null)),
  };
}

export function withPlaces(design: Design, places: Map<string, Place>): Design {
  const nodes = design.nodes.map((node) => {
    const place = places.get(node.id);
    const stays = !place || (place.x === node.position?.x && place.y === node.position.y);
    return stays ? node : { ...node, position: { x: Math.round(place.x), y: Math.round(place.y) } };
  });
  return { ...design, nodes };
}

export function withoutNodes(design: Design, ids: Set<string>, edges: Set<DesignEdge> = new Set()): Design {
  return {
    ...design,
    nodes: design.nodes.filter((node) => !ids.has(node.id)),
    edges: design.edges.filter(
      (edge) => !edges.has(edge) && !ids.has(edge.source) && !ids.has(edge.target),
    ),
  };
}

/** Return whether an edge may be drawn: not to itself, not twice, and not in a circle. */
export function mayConnect(design: Design, edge: DesignEdge): boolean {
  const same = (one: DesignEdge): boolean =>
    one.source === edge.source &&
    one.target === edge.target &&
    (one.sourceHandle ?? null) === (edge.sourceHandle ?? null);
  return !design.edges.some(same) && !isReachable(design, edge.target, edge.source);
}

export function withEdge(design: Design, edge: DesignEdge): Design {
  if (!mayConnect(design, edge)) return design;
  const { source, target, sourceHandle } = edge;
  const id = `e_${source}_${sourceHandle ?? ""}_${target}`;
  const made = { id, source, target, ...(sourceHandle ? { sourceHandle } : {}) };
  return { ...design, edges: [...design.edges, made] };
}

function isReachable(design: Design, from: string, to: string): boolean {
  const seen = new Set([from]);
  for (const id of seen) {
    if (id === to) return true;
    for (const edge of design.edges) if (edge.source === id) seen.add(edge.target);
  }
  return false;
}

/** The nodes that come before one, the nearest first. */
export function nodesBefore(design: Design, id: string): DesignNode[] {
  const found = new Set<string>();
  const waiting = [id];
  for (const one of waiting) {
    for (const edge of design.edges) {
      if (edge.target === one && !found.has(edge.source)) {
        found.add(edge.source);
        waiting.push(edge.source);
      }
    }
  }
  found.delete(id);
  return [...found].flatMap((one) => design.nodes.filter((node) => node.id === one));
}
