/** Names of codes of the platform. An unknown code is returned unchanged. */
import type { MenuNode } from "../../api/generated";
import { t, translateIfKnown } from "../../i18n/index.svelte";
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
