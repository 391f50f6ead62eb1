/** Where one may go: the pages of the menu, and things by their names. */
import { request } from "../../api/client";
import { findDevices, searchDashboards, searchFlows, type ColumnFilter } from "../../api/generated";
import { rowsOf } from "../../api/pages";
import { session } from "../../api/session.svelte";
import { t } from "../../i18n/index.svelte";
import { groups, mayEnter } from "../../nav";
import { findEntitiesByColumns } from "../integrations/names";

export interface Goal {
  kind: "page" | "device" | "value" | "dashboard" | "flow";
  title: string;
  note?: string;
  path: string;
}

/** The most of each kind. */
const MOST = 8;
/** Functions that allow a search of entities; one is enough. */
const ENTITIES = ["dashboard.edit", "device.view", "entity_custom.view", "entity_data.view", "workflow.add", "workflow.edit"];

export function listPages(): Goal[] {
  return groups.flatMap(({ entries }) => entries.filter(mayEnter).map(({ title, path }) => ({ kind: "page" as const, title: t(title), path })));
}

/** Things whose names have `text` in them, as far as one may see them. */
export async function findGoals(text: string): Promise<Goal[]> {
  const searches = [
    session.may("device.view") && devices(text),
    session.mayOpen("/entities/:id") && ENTITIES.some((code) => session.may(code)) && values(text),
    session.may("dashboard.view") && dashboards(text),
    session.may("workflow.view") && flows(text),
  ];
  return (await Promise.all(searches.filter((one) => one !== false))).flat();
}

async function devices(name: string): Promise<Goal[]> {
  const { content } = await request(findDevices({ body: { name, page_size: MOST, page_number: 1 } }));
  return content.map((one) => ({ kind: "device", title: one.name, note: one.identifier, path: `/devices/${one.id}` }));
}

async function values(name: string): Promise<Goal[]> {
  const entity_filter: Record<string, ColumnFilter> = {
    ENTITY_NAME: { operator: "CONTAINS", values: [name] },
    ENTITY_TYPE: { operator: "ANY_EQUALS", values: ["PROPERTY"] },
  };
  const { content } = await findEntitiesByColumns(entity_filter, 1, MOST);
  return content.map((one) => ({ kind: "value", title: one.entity_name, note: one.device_name ?? one.integration_name ?? "", path: `/entities/${one.entity_id}` }));
}

async function dashboards(name: string): Promise<Goal[]> {
  const all = await request(searchDashboards({ body: { name } }));
  return all.slice(0, MOST).map((one) => ({ kind: "dashboard", title: one.name, path: `/dashboards/${one.dashboard_id}` }));
}

async function flows(name: string): Promise<Goal[]> {
  const all = rowsOf(await request(searchFlows({ body: { name, page_size: MOST, page_number: 1 } })));
  return all.map((one) => ({ kind: "flow", title: one.name, path: `/flows/${one.id}` }));
}
