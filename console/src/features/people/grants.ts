/** Resources of roles: granted ones and those that can be granted. */
import { request } from "../../api/client";
import {
  findDeviceGroups,
  findDevices,
  listOtherDashboards,
  listOtherDevices,
  listOtherIntegrations,
  listRoleDashboards,
  listRoleDevices,
  listRoleIntegrations,
  listRoleResources,
  searchDashboards,
  searchFlows,
  searchIntegrations,
  type ResourceType,
  type SearchEntities,
} from "../../api/generated";
import { pageOf, rowsOf, type Page } from "../../api/pages";
import { findEntities, integrationKeywords, integrationName } from "../integrations/names";

export interface Thing {
  value: string;
  label: string;
  note?: string;
}

interface Kind {
  /** Load a page of granted resources whose names contain `keyword`. */
  held: (role: number, keyword: string, page: number) => Promise<Page<Thing>>;
  /** Load resources that can be granted, whose names contain `keyword`. */
  others: (role: number, keyword: string) => Promise<Thing[]>;
}

const SIZE = 25;
const FOUND = 50;
/** The most groups that a tenant has. */
const GROUPS = 1_000;

const path = (role_id: number) => ({ role_id });
const body = (keyword: string, page_number = 1, page_size = FOUND) => ({ keyword: keyword || null, page_number, page_size });

function named<T>(page: Page<T>, thing: (row: T) => Thing): Page<Thing> {
  return { ...page, content: page.content.map(thing) };
}

/** Find things by name, or by the name of their integration in the user's language. */
async function findThings<T>(text: string, search: (sent: ReturnType<typeof body>) => Promise<T[] | Page<T>>, thing: (row: T) => Thing): Promise<Thing[]> {
  const answers = await Promise.all(integrationKeywords(text).map((keyword) => search(body(keyword))));
  return [...new Map(answers.flatMap(rowsOf<T>).map((row) => [thing(row).value, thing(row)])).values()];
}

/** Kinds whose names are asked for by themselves. */
function byIds(type: ResourceType, others: Kind["others"]): Kind {
  return {
    async held(role, _keyword, page) {
      const search = { page_number: page, page_size: SIZE, resource_type: type };
      const found = pageOf(await request(listRoleResources({ path: path(role), body: search })));
      const ids = found.content.map((one) => one.resource_id);
      const known = new Map((ids.length ? await NAMES[type](ids) : []).map((one) => [one.value, one]));
      return named(found, ({ resource_id: value }) => known.get(value) ?? { value, label: value });
    },
    others,
  };
}

const device = (one: { device_id: string; device_name: string; integration_id: string; integration_name: string }): Thing => ({
  value: one.device_id,
  label: one.device_name,
  note: integrationName(one.integration_id, one.integration_name),
});
const integration = (one: { integration_id: string; integration_name: string }): Thing => ({
  value: one.integration_id,
  label: integrationName(one.integration_id, one.integration_name),
});
const dashboard = (one: { dashboard_id: string; dashboard_name: string }): Thing => ({
  value: one.dashboard_id,
  label: one.dashboard_name,
});

async function groups(keyword = ""): Promise<Thing[]> {
  const found = await request(findDeviceGroups({ body: { name: keyword || null, page_size: GROUPS, page_number: 1 } }));
  return found.content.map((one) => ({ value: one.id, label: one.name }));
}

async function flows(keyword = ""): Promise<Thing[]> {
  const found = rowsOf(await request(searchFlows({ body: { name: keyword || null, page_size: GROUPS, page_number: 1 } })));
  return found.map((one) => ({ value: one.id, label: one.name }));
}

async function entities(search: SearchEntities): Promise<Thing[]> {
  return (await findEntities({ page_size: FOUND, page_number: 1, ...search })).map((one) => ({ value: one.entity_id, label: one.entity_name, note: one.device_name ?? one.entity_key }));
}

/** Load the names of resources by their ids, or of all resources of a type. */
export const NAMES: Record<ResourceType, (ids: string[]) => Promise<Thing[]>> = {
  DEVICE: async (id_list) => {
    const found = await request(findDevices({ body: { id_list, page_size: id_list.length, page_number: 1 } }));
    return found.content.map((one) => ({ value: one.id, label: one.name }));
  },
  DEVICE_GROUP: () => groups(),
  INTEGRATION: async () => {
    const found = rowsOf(await request(searchIntegrations({ body: { page_size: GROUPS, page_number: 1 } })));
    return found.map((one) => ({ value: one.id, label: integrationName(one.id, one.name) }));
  },
  DASHBOARD: async () => (await request(searchDashboards({ body: {} }))).map((one) => ({ value: one.dashboard_id, label: one.name })),
  WORKFLOW: () => flows(),
  ENTITY: (entity_ids) => entities({ entity_ids, page_size: entity_ids.length }),
};

export const KINDS: Record<ResourceType, Kind> = {
  DEVICE: {
    held: async (role, keyword, page) =>
      named(pageOf(await request(listRoleDevices({ path: path(role), body: body(keyword, page, SIZE) }))), device),
    others: (role, text) => findThings(text, (sent) => request(listOtherDevices({ path: path(role), body: sent })), device),
  },
  DEVICE_GROUP: byIds("DEVICE_GROUP", (_, keyword) => groups(keyword)),
  INTEGRATION: {
    held: async (role, keyword, page) =>
      named(pageOf(await request(listRoleIntegrations({ path: path(role), body: body(keyword, page, SIZE) }))), integration),
    others: (role, text) => findThings(text, (sent) => request(listOtherIntegrations({ path: path(role), body: sent })), integration),
  },
  DASHBOARD: {
    held: async (role, keyword, page) =>
      named(pageOf(await request(listRoleDashboards({ path: path(role), body: body(keyword, page, SIZE) }))), dashboard),
    others: async (role, keyword) =>
      rowsOf(await request(listOtherDashboards({ path: path(role), body: body(keyword) }))).map(dashboard),
  },
  WORKFLOW: byIds("WORKFLOW", (_, keyword) => flows(keyword)),
  ENTITY: byIds("ENTITY", (_, keyword) => entities({ keyword })),
};
export const TYPES = Object.keys(KINDS) as ResourceType[];
