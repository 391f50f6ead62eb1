/** Names of the objects whose ids are in the audit log. */
import type { AuditEntryResponse, MenuNode, ResourceType } from "../../api/generated";
import { formatList, t, type Key } from "../../i18n/index.svelte";
import { NAMES, TYPES } from "../people/grants";
import { permissionName, roleName } from "../people/names";
import { allRoles, findUsers, menuTree } from "../people/people";
import { idsIn, isIdField, type IdField } from "./values";

/** Maximum users whose names are loaded. */
const MAX_USERS = 10_000;
const KINDS: Record<ResourceType, Key> = {
  DEVICE: "alarms.device",
  DEVICE_GROUP: "devices.group",
  INTEGRATION: "device.integration",
  DASHBOARD: "device.used.dashboard",
  WORKFLOW: "device.used.flow",
  ENTITY: "boards.entity",
};
/** Load names for the ids of a field. */
const LOADERS: Record<IdField, (ids: string[]) => Promise<[id: string, name: string][]>> = {
  roleIds: async () => (await allRoles()).map(({ role_id, name }) => [role_id, roleName(name)]),
  userIds: async () => (await findUsers("", 1, MAX_USERS)).content.map(({ user_id, email }) => [user_id, email]),
  menuIds: async () => permissionNames(await menuTree()),
  resources: async (ids) => (await Promise.all(TYPES.map((type) => resourceNames(type, ids)))).flat(),
};

/** Names by field and id. */
type Names = Map<string, string>;

const nameKey = (field: string, id: string): string => `${field} ${id}`;

/** Return the names of permissions. Pages of the menu tree have empty names: each permission contains its page. */
function permissionNames(nodes: MenuNode[], page?: MenuNode): [string, string][] {
  return nodes.flatMap((node) => {
    const isFunction = page && node.type === "FUNCTION";
    const name = isFunction ? `${permissionName(page)} – ${permissionName(node)}` : "";
    return [[node.menu_id, name], ...permissionNames(node.children, node)];
  });
}

/** Return the names of resources of a type, whose ids are such as `DEVICE 1000000`. */
async function resourceNames(type: ResourceType, resources: string[]): Promise<[string, string][]> {
  const ids = resources.filter((resource) => resource.startsWith(`${type} `)).map((resource) => resource.slice(type.length + 1));
  const found = new Map((ids.length ? await NAMES[type](ids) : []).map(({ value, label }) => [value, label]));
  return ids.map((id) => [`${type} ${id}`, `${t(KINDS[type])} ${found.get(id) ?? t("audit.id", { id })}`]);
}

/** Load the names of the objects whose ids are in an entry. */
export async function loadNames({ before, after }: AuditEntryResponse): Promise<Names> {
  const fields = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter(isIdField);
  const loaded = await Promise.all(
    fields.map(async (field) => {
      const ids = [before?.[field], after?.[field]].flatMap((value) => (value ? idsIn(value).shown : []));
      return (await LOADERS[field](ids)).map(([id, name]): [string, string] => [nameKey(field, id), name]);
    }),
  );
  return new Map(loaded.flat());
}

/** Return the names for the ids in a value. An object that no longer exists has its id. */
export function formatIds(field: string, value: unknown, names: Names): string {
  const { shown, others } = idsIn(value);
  const texts = formatList(shown.map((id) => names.get(nameKey(field, id)) ?? t("audit.id", { id })).filter(Boolean));
  return others ? t("audit.others", { names: texts, count: others }) : texts;
}
