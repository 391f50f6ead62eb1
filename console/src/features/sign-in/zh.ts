import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "sign-in.title": "登录",
  "sign-in.email": "邮箱",
  "sign-in.password": "密码",
  "sign-in.go": "登录",
  "sign-in.wrong": "邮箱或密码不正确。如忘记密码，请联系超级管理员重置。",
  "sign-in.ended": "会话已结束",
  "sign-in.ended.text": "请输入 {email} 的密码以继续。本页的修改会保留。",
  "sign-in.wrong-password": "密码不正确。",
  "welcome.title": "欢迎使用 Thingway",
  "welcome.text": "您已以 {email} 登录。请设置以后登录使用的密码。",
  "welcome.password": "新密码",
  "welcome.rule": "8 到 63 个字符，须含大写字母、小写字母和数字。",
  "welcome.go": "设置密码",
  "welcome.used": "此链接已用于设置密码，请用该密码登录。",
  "sign-in.tenant": "租户",
  "sign-in.tenant.rule": "字母、数字、_ 和 -。",
  "sign-in.other-tenant": "登录其他租户",
};
