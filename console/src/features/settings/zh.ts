import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "settings.title": "设置",
  "settings.commands": "命令",
  "settings.viewers": "仅有查看权限的用户可以向设备下发命令",
  "settings.viewers.text":
    "开启后，对设备、仪表板或集成仅有查看权限的用户也可以设置值和调用服务。关闭后，用户需要以下任一权限：{permissions}。修改立即生效。",
  "settings.saved": "设置已保存。",
  "settings.notice": "新增了一项设置，用于控制仅有查看权限的用户能否向设备下发命令。该设置在您的租户中已开启，与之前的行为一致。您可以在“设置”页面将其关闭。",
  "settings.notice.open": "打开设置",
  "settings.notice.dismiss": "不再显示",
  "page.no-access": "您无权访问此页面",
  "page.no-access.text": "您的角色不包含此页面。请联系超级管理员授权。",
  "page.no-access.back": "返回运行概况",
};
