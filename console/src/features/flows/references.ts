/** Outputs of nodes, and references to them: `#{properties.<node>['<key>']}`. */
import { componentOf, type DesignNode, isRecord } from "./design.ts";

export interface Output {
  /** Null is all that the node puts out. */
  key: string | null;
  name: string;
}

const REQUEST = ["body", "params", "header", "url", "pathParam"];
const OUTPUTS: Record<string, string[]> = {
  httpIn: REQUEST,
  simpleMqtt: ["topic", "payload"],
  httpRequest: ["statusCode", "responseBody", "responseHeaders", "responseFault"],
  alarm: ["alarmId", "changed"],
};

export function reference(node: string, key: string | null): string {
  const further = key === null ? "" : `['${key.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}']`;
  return `#{properties.${node}${further}}`;
}

/** Return the key of a text that consists of one reference, else an empty text. */
export function keyOf(text: unknown): string {
  const found = /^#\{properties\.\w+\['([^'{}]+)'\]\}$/.exec(String(text));
  return found?.[1] ?? "";
}

/** Return the outputs of a node that its parameters declare. */
export function outputsOf(node: DesignNode): Output[] {
  const given = node.data.parameters ?? {};
  const names: Output[] = [{ key: null, name: "" }];
  const add = (key: unknown, name: unknown = key): void => {
    if (typeof key === "string" && key) names.push({ key, name: String(name) });
  };
  for (const key of OUTPUTS[componentOf(node)] ?? []) add(key);
  for (const key of list(given.entities)) add(key);
  for (const one of list(given.entityConfigs)) if (isRecord(one)) add(one.identify, one.name);
  for (const one of list(given.payload)) if (isRecord(one)) add(one.name);
  for (const key of Object.keys(isRecord(given.exchangePayload) ? given.exchangePayload : {})) add(key);
  for (const key of Object.keys(isRecord(given.outputVariables) ? given.outputVariables : {})) add(key);
  return names;
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Return sample input for a test of an entry node. */
export function sampleInput(node: DesignNode | undefined): Record<string, unknown> {
  if (!node) return {};
  const kind = componentOf(node);
  const given = node.data.parameters ?? {};
  if (kind === "httpIn") return { body: {}, params: {}, header: {} };
  if (kind === "simpleMqtt") return { topic: given.subscriptionTopic ?? "", payload: "" };
  const samples: Record<string, unknown> = { LONG: 0, DOUBLE: 0, BOOLEAN: false, STRING: "" };
  const inputs = list(given.entityConfigs).filter(isRecord);
  return Object.fromEntries([
    ...inputs.map((one) => [one.identify, samples[String(one.type)] ?? ""]),
    ...list(given.entities).filter((key) => !String(key).includes("*")).map((key) => [key, 0]),
  ]);
}
