/** Places for nodes that have none. */
import { type Design, handlesOf, isPlaced, withPlaces, type Place } from "./design.ts";

export const WIDTH = 220;
const HEIGHT = 64;
/** Pixels that each further branch of a node needs. */
const BRANCH = 26;

/** The design with a place for every node; as it is when all have one. */
export async function placeMissing(design: Design): Promise<Design> {
  return design.nodes.every(isPlaced) ? design : arrangeNodes(design);
}

/** All nodes from left to right, in the order in which they run. */
export async function arrangeNodes(design: Design): Promise<Design> {
  const { Graph, layout } = await import("@dagrejs/dagre");
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 36, ranksep: 90 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of design.nodes) {
    const branches = handlesOf(node).length;
    graph.setNode(node.id, { width: WIDTH, height: HEIGHT + (branches > 1 ? branches * BRANCH : 0) });
  }
  const known = new Set(design.nodes.map((node) => node.id));
  design.edges.forEach((edge, at) => {
    if (known.has(edge.source) && known.has(edge.target)) graph.setEdge(edge.source, edge.target, {}, String(at));
  });
  layout(graph);
  const places = new Map<string, Place>();
  for (const node of design.nodes) {
    const { x, y, width, height } = graph.node(node.id);
    places.set(node.id, { x: x - width / 2, y: y - height / 2 });
  }
  return withPlaces(design, places);
}
