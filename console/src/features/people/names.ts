/** Names of codes of the platform. An unknown code is returned unchanged. */
import type { MenuNode } from "../../api/generated";
import { translateIfKnown } from "../../i18n/index.svelte";

/** The words of a page or function of the menu tree: those that people gave it, else ours. */
export function permissionName(menu: Pick<MenuNode, "code" | "name">): string {
  if (menu.name !== menu.code) return menu.name;
  const [, verb] = menu.code.split(".");
  return translateIfKnown((verb ? `permission.${verb}` : `permission.page.${menu.code}`)) ?? menu.code;
}

/** The words for a deed of the audit log. */
export function actionName(action: string): string {
  return translateIfKnown(`audit.action.${action}`) ?? action;
}

/** The words for a kind of thing that deeds are done to. */
export function objectName(type: string): string {
  return translateIfKnown(`audit.object.${type}`) ?? type;
}
