/** Pages by the key that follows `g`. */
export const JUMPS: Record<string, string> = {
  h: "/",
  d: "/devices",
  a: "/alarms",
  b: "/dashboards",
  f: "/flows",
  e: "/entities",
  l: "/events",
  s: "/system",
};
