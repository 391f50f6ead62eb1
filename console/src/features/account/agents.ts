/** Which program a `User-Agent` names, as far as people know it: `Firefox · Linux`. */

/** In this order: browsers name those that they are like, too. */
const PROGRAMS: [RegExp, string][] = [
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Firefox\//, "Firefox"],
  [/Chrom(e|ium)\//, "Chrome"],
  [/Safari\//, "Safari"],
];
const SYSTEMS: [RegExp, string][] = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/Linux/, "Linux"],
];

export function browserName(agent: string): string {
  const of = (known: [RegExp, string][]) => known.find(([pattern]) => pattern.test(agent))?.[1];
  return [of(PROGRAMS) ?? agent.split(/[ /]/)[0], of(SYSTEMS)].filter(Boolean).join(" · ");
}
