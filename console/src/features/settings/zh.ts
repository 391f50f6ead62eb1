import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "settings.title": "设置",
  "settings.commands": "命令",
  "settings.viewers": "只读用户可以向设备下发命令",
  "settings.viewers.text":
    "开启后，只能查看设备、仪表板或集成的用户也可以设置值和调用服务。关闭后，用户需要以下任一功能：{functions}。更改立即生效。",
  "settings.saved": "设置已保存",
  "settings.notice": "新增一项设置，决定只有查看功能的用户能否向设备下发命令。您的租户保持原样，该设置为开启。您可以在“设置”页面将其关闭。",
  "settings.notice.open": "打开设置",
  "settings.notice.dismiss": "不再显示",
  "page.no-access": "您无权访问此页面",
  "page.no-access.text": "您的角色不包含此页面。请联系租户的管理员授权。",
  "page.no-access.back": "返回首页",
};
