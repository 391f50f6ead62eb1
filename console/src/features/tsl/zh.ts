import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "tsl.true": "开",
  "tsl.false": "关",
  "tsl.element": "添加元素",
  "tsl.remove": "移除 {name}",
  "tsl.size": "长度",
};
