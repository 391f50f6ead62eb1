import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "palette.open": "跳转",
  "palette.title": "跳转到页面、设备、数值、仪表板或流程",
  "palette.type": "输入页面、设备、数值、仪表板或流程的名称",
  "palette.results": "结果",
  "palette.kind.page": "页面",
  "palette.kind.device": "设备",
  "palette.kind.value": "数值",
  "palette.kind.dashboard": "仪表板",
  "palette.kind.flow": "流程",
  "keys.title": "键盘快捷键",
  "keys.search": "在本页搜索",
  "keys.close": "关闭当前对话框或菜单",
};
