import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "start.title": "运行概况",
  "start.devices": "设备",
  "start.online": "在线",
  "start.offline": "离线",
  "start.never": "从未上线",
  "start.newest": "最近添加",
};
