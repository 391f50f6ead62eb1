import { zh as account } from "../features/account/zh";
import { zh as alarms } from "../features/alarms/zh";
import { zh as applications } from "../features/applications/zh";
import { zh as audit } from "../features/audit/zh";
import { zh as entities } from "../features/entities/zh";
import { zh as events } from "../features/events/zh";
import { zh as fleet } from "../features/fleet/zh";
import { zh as integrations } from "../features/integrations/zh";
import { zh as palette } from "../features/palette/zh";
import { zh as people } from "../features/people/zh";
import { zh as system } from "../features/system/zh";
import { zh as dashboards } from "../features/dashboards/zh";
import { zh as devices } from "../features/devices/zh";
import { zh as flows } from "../features/flows/zh";
import { zh as products } from "../features/products/zh";
import { zh as settings } from "../features/settings/zh";
import { zh as signIn } from "../features/sign-in/zh";
import { zh as start } from "../features/start/zh";
import { zh as tsl } from "../features/tsl/zh";
import type { Messages } from "./index.svelte";

export const zh: Messages = {
  ...account,
  ...alarms,
  ...applications,
  ...audit,
  ...entities,
  ...events,
  ...fleet,
  ...integrations,
  ...palette,
  ...people,
  ...system,
  ...dashboards,
  ...devices,
  ...flows,
  ...products,
  ...settings,
  ...signIn,
  ...start,
  ...tsl,
  "nav.start": "首页",
  "nav.devices": "设备",
  "nav.docs": "接口",
  "nav.sign-out": "退出登录",
  "nav.theme": "浅色或深色",
  "nav.language": "语言",
  "nav.skip": "跳到内容",
  "live.on": "实时",
  "live.off": "连接已断开，正在重连",
  "connection.offline": "网络已断开",
  "connection.unreachable": "平台没有应答",
  "connection.page": "平台应答后，此页面将自动打开。",
  "connection.offline.text": "网络已断开，本页数值可能不是最新。",
  "connection.unreachable.text": "平台没有应答，正在重连。",
  "connection.reconnecting.text": "实时数值已中断，正在重连。",
  "status.ONLINE": "在线",
  "status.OFFLINE": "离线",
  "status.NEVER_SEEN": "从未上线",
  "failure.title": "操作失败",
  "failure.request": "请求 {id}",
  "failure.retry": "重试",
  "page.unknown": "没有这个页面。",
  "nav.menu": "菜单",
  "nav.things": "物",
  "nav.products": "产品",
  "page.loading": "加载中",
  "page.above": "上级页面",
  "failure.offline": "平台没有应答。请检查平台是否运行、本机是否联网。",
  "failure.status": "平台返回状态码 {status}，请稍后重试。",
  "failure.stale": "显示的内容可能不是最新：{why}",
  "dialog.close": "关闭",
  "dialog.cancel": "取消",
  "dialog.save": "保存",
  "dialog.delete": "删除",
  "dialog.edit": "编辑",
  "dialog.name": "名称",
  "dialog.delete-title": "删除 {name}？",
  "dialog.deleted": "{name} 已删除",
  "dialog.rename": "重命名",
  "dialog.description": "描述",
  "dialog.enabled": "已启用",
  "dialog.disabled": "已停用",
  "dialog.state": "状态",
  "dialog.add": "添加",
  "dialog.copy": "复制",
  "dialog.copied": "已复制",
  "dialog.more": "更多",
  "dialog.type": "输入 {word} 以确认",
  "unsaved.title": "放弃修改？",
  "unsaved.text": "本页有未保存的修改，放弃后无法恢复。",
  "unsaved.leave": "放弃修改",
  "toasts.title": "通知",
  "diff.unchanged": "{count} 行相同",
  "entity.search": "搜索实体",
  "combobox.type": "输入以搜索",
  "combobox.none": "没有结果",
  "pages.title": "分页",
  "pages.shown": "第 {first} 至 {last} 条，共 {total} 条",
  "pages.before": "上一页",
  "pages.after": "下一页",
  "pages.older": "显示更早的",
  "range.15m": "最近 15 分钟",
  "range.hour": "最近 1 小时",
  "range.6h": "最近 6 小时",
  "range.day": "最近 1 天",
  "range.week": "最近 1 周",
  "range.month": "最近 30 天",
  "range.start": "从",
  "range.end": "至",
  "nav.fleet": "设备群",
  "nav.administration": "管理",
  "dialog.not-copied": "浏览器不允许复制。",
};
