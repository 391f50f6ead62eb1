import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "events.title": "事件",
  "events.text": "您可见实体的实时变化。被拒的上报、连接和指令请见设备页面。",
  "events.keyword": "实体、设备或键",
  "events.value": "值包含",
  "events.listening": "正在监听 {count} / {total} 个实体",
  "events.pause": "暂停",
  "events.go-on": "继续（错过 {count} 条）",
  "events.clear": "清空",
  "events.when": "时间",
  "events.source": "设备",
  "events.none": "尚无变化",
  "events.none.text": "正在监听 {count} 个实体，变化会立即显示。",
};
