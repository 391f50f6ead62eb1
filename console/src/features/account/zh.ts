import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "account.title": "我的账户",
  "account.tenant": "租户",
  "account.password": "密码",
  "account.password.text": "修改密码会结束您的所有其他会话，当前会话保持登录。",
  "account.password.old": "当前密码",
  "account.password.go": "修改密码",
  "account.password.done": "密码已修改。",
  "sessions.title": "会话",
  "sessions.text": "您已登录的浏览器和客户端。如有不认识的会话，请结束该会话并修改密码。",
  "sessions.program": "浏览器或客户端",
  "sessions.address": "IP 地址",
  "sessions.started": "登录时间",
  "sessions.used": "最近续期",
  "sessions.current": "当前会话",
  "sessions.unknown": "未知",
  "sessions.end": "结束会话",
  "sessions.ended": "会话已结束。",
  "sessions.end-others": "结束所有其他会话",
  "sessions.end-others.text": "其他 {count} 个会话将立即结束，当前会话保持登录。",
  "sessions.ended-others": "所有其他会话已结束。",
};
