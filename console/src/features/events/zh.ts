import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "events.title": "实时变化",
  "events.text": "您可见的所有实体的数值变化和事件，实时显示。连接、命令和被拒绝的上报见各设备的页面。",
  "events.keyword": "设备名称或实体键",
  "events.value": "值包含",
  "events.group": "分组",
  "events.all-groups": "全部分组",
  "events.all-devices": "全部设备",
  "events.skipped": "页面来不及处理，跳过了 {count} 条变化。请筛选列表以查看全部变化。",
  "events.gap": "连接曾中断，期间的变化不在列表中。",
  "events.pause": "暂停",
  "events.go-on": "继续（跳过 {count} 条）",
  "events.clear": "清空",
  "events.when": "时间",
  "events.source": "设备",
  "events.none": "尚无变化",
  "events.none.text": "设备上报后，变化会立即显示在这里。",
  "events.none-match": "尚无符合筛选条件的变化",
  "events.none-match.text": "其他变化不会显示。请修改或清除筛选条件。",
};
