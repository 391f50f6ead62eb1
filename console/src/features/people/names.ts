/** Names of codes of the platform. An unknown code is returned unchanged. */
import type { MenuNode } from "../../api/generated";
import { formatBytes, t, translateIfKnown, type Key } from "../../i18n/index.svelte";
import { formatValue } from "../../lib/values";
import { SUPER_ADMIN } from "./people";

/** Return the name of a page or function of the menu tree: a user's own name, or ours. */
export function permissionName(menu: Pick<MenuNode, "code" | "name">): string {
  if (menu.name !== menu.code) return menu.name;
  const [, verb] = menu.code.split(".");
  return translateIfKnown((verb ? `permission.${verb}` : `permission.page.${menu.code}`)) ?? menu.code;
}

/** Return the name of a role. The platform names only the role of super-admins with a code. */
export function roleName(role: string): string {
  return role === SUPER_ADMIN ? t("roles.super-admin") : role;
}

/** Return the name of an action of the audit log. */
export function actionName(action: string): string {
  return translateIfKnown(`audit.action.${action}`) ?? action;
}

/** Return the name of a type of objects of the audit log. */
export function objectName(type: string): string {
  return translateIfKnown(`audit.object.${type}`) ?? type;
}

/** Titles of the fields of entries of the audit log, as the pages of the objects show them. */
const FIELDS: Record<string, Key> = {
  name: "dialog.name",
  nickname: "dialog.name",
  description: "dialog.description",
  email: "people.email",
  roleIds: "people.roles",
  userIds: "people.users",
  menuIds: "roles.permissions",
  resources: "roles.grants",
  client_id: "applications.client-id",
  events: "applications.events",
  allowed_addresses: "applications.allowed",
  device_id: "device.id",
  sn: "audit.sn",
  viewers_may_command: "settings.viewers",
  reason: "results.reason",
};

/** Return the name of a field of an entry of the audit log. The fields of changed limits are their names. */
export function fieldName(field: string): string {
  return FIELDS[field] ? t(FIELDS[field]) : (translateIfKnown(`limit.${field}`) ?? field);
}

/** Return a value of an entry of the audit log; reasons of rejected logins are codes. */
export function fieldValue(field: string, value: unknown): string {
  if (value === undefined) return "";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "number" && field.toLowerCase().endsWith("bytes")) return formatBytes(value);
  return (field === "reason" && translateIfKnown(`audit.reason.${String(value)}`)) || formatValue(value);
}

/** Return the name that the platform stores for a name with which the console replaces a code. */
export function storedName(shown: string): string {
  const codes = { [roleName(SUPER_ADMIN)]: SUPER_ADMIN, [t("audit.operator")]: "operator" };
  return Object.entries(codes).find(([name]) => name.toLowerCase() === shown.toLowerCase())?.[1] ?? shown;
}
