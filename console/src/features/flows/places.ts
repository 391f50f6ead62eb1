/** Names of the places of problems, as the forms of nodes show them. */
import type { DesignFault } from "../../api/generated";
import { t, translateIfKnown, type Key } from "../../i18n/index.svelte";
import type { Kind } from "./catalogue";

const NAMES: Record<string, Key> = {
  timezone: "flows.timer.zone",
  executionEpochSecond: "flows.timer.at",
  intervalTime: "flows.timer.every",
  intervalTimeUnit: "flows.timer.unit",
  rules: "flows.timer.time",
  expirationEpochSecond: "flows.timer.until",
  language: "flows.code.language",
};

/** Return the title of the parameter that a field such as `parameters.payload[0].name` is in, and its part in it. */
export function placeName(kind: Kind | undefined, field: string): string {
  const [, name, rest = ""] = /^parameters\.(\w+)(.*)$/.exec(field) ?? [];
  const parameter = kind?.parameters.find((one) => one.name === name);
  return parameter ? [parameter.title, partName(rest)].filter(Boolean).join(", ") : field;
}

/** Return the reason of a problem behind the name of its place; a problem of a whole node has no place. */
export function placeFault(kind: Kind | undefined, { field, reason }: DesignFault): string {
  return field === "nodes" || field === "edges" ? reason : t("failure.field", { name: placeName(kind, field), reason });
}

/** Return the name of a part of a parameter: `[0].name` is `1, Name`. */
export function partName(path: string): string {
  const parts = [...path.matchAll(/([A-Za-z_]\w*)?(?:\[(\d+)\])?/g)].filter(([text]) => text);
  const inCondition = path.includes("conditions[");
  const names = parts.map(([, name = "", at]) => {
    const number = at === undefined ? "" : Number(at) + 1;
    if (name === "when" && number) return t("flows.branch.number", { number });
    if (name === "conditions" && number) return t("flows.condition.number", { number });
    if (name === "expressionValue" || name === "expression") return "";
    if (inCondition && (name === "key" || name === "value")) return t(name === "key" ? "flows.branch.left" : "flows.branch.right");
    const known = NAMES[name] ? t(NAMES[name]) : (translateIfKnown(`flows.field.${name}`) ?? name);
    return `${known} ${number}`.trim();
  });
  return names.filter(Boolean).join(", ");
}
