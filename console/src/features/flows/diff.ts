/** How two versions of a design differ. */
import { type Design, type DesignEdge, type DesignNode, nameOf } from "./design.ts";

export interface Changed {
  id: string;
  name: string;
  before: string;
  after: string;
}

export interface Differences {
  added: DesignNode[];
  removed: DesignNode[];
  changed: Changed[];
  /** Only their places differ. */
  moved: DesignNode[];
  connected: string[];
  disconnected: string[];
}

export function differences(before: Design, after: Design): Differences {
  const old = new Map(before.nodes.map((node) => [node.id, node]));
  const now = new Map(after.nodes.map((node) => [node.id, node]));
  const both = after.nodes.flatMap((node) => {
    const was = old.get(node.id);
    return was ? [[was, node] as const] : [];
  });
  const edges = (one: Design): Map<string, string> => new Map(one.edges.map((edge) => [key(edge), arrow(edge, old, now)]));
  const [were, are] = [edges(before), edges(after)];
  return {
    added: after.nodes.filter((node) => !old.has(node.id)),
    removed: before.nodes.filter((node) => !now.has(node.id)),
    changed: both
      .map(([was, is]) => ({ id: is.id, name: nameOf(is), before: essence(was), after: essence(is) }))
      .filter((one) => one.before !== one.after),
    moved: both.filter(([was, is]) => essence(was) === essence(is) && place(was) !== place(is)).map(([, is]) => is),
    connected: [...are].filter(([one]) => !were.has(one)).map(([, text]) => text),
    disconnected: [...were].filter(([one]) => !are.has(one)).map(([, text]) => text),
  };
}

/** Return the parameters of a node as text, without place and size. */
function essence(node: DesignNode): string {
  const { nodeName, nodeRemark, parameters } = node.data;
  return JSON.stringify({ componentName: node.componentName, nodeName, nodeRemark, parameters }, null, 2);
}

function place(node: DesignNode): string {
  return `${node.position?.x},${node.position?.y}`;
}

function key(edge: DesignEdge): string {
  return [edge.source, edge.sourceHandle ?? "", edge.target].join("\n");
}

function arrow(edge: DesignEdge, old: Map<string, DesignNode>, now: Map<string, DesignNode>): string {
  const name = (id: string): string => {
    const node = now.get(id) ?? old.get(id);
    return node ? nameOf(node) : id;
  };
  return `${name(edge.source)} → ${name(edge.target)}`;
}
