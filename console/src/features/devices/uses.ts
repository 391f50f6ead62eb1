/** Flows, rules, dashboards and roles that use a device, as far as the user may see them. */
import { request } from "../../api/client";
import {
  getCanvas,
  getDesign,
  listCanvases,
  listRoleDevices,
  listRoleResources,
  searchAlarmRules,
  searchDashboards,
  searchFlows,
  searchRoles,
  type DeviceDetail,
} from "../../api/generated";
import { rowsOf } from "../../api/pages";
import { session } from "../../api/session.svelte";

export interface Use {
  kind: "flow" | "rule" | "dashboard" | "role";
  name: string;
  href: string;
}

/** Flows, dashboards and roles that are looked through. */
const LOOKED_THROUGH = 50;
/** The most groups that a tenant has. */
const GROUPS = 1_000;

/** Return whether a content contains the key of the device or of one of its entities. */
function isNamedIn(device: DeviceDetail, content: unknown): boolean {
  const text = JSON.stringify(content);
  return text.includes(device.key) || device.entities.some((one) => text.includes(`"${one.id}"`));
}

async function findRules(device: DeviceDetail): Promise<Use[]> {
  const { content } = await request(searchAlarmRules({ body: { device_id: device.id, page_size: LOOKED_THROUGH, page_number: 1 } }));
  return content.map((rule) => ({ kind: "rule", name: rule.name, href: "#/alarms/rules" }));
}

async function findFlows(device: DeviceDetail): Promise<Use[]> {
  const found = await request(searchFlows({ body: { page_size: LOOKED_THROUGH, page_number: 1 } }));
  const listed = rowsOf(found);
  const designs = await Promise.all(listed.map((flow) => request(getDesign({ path: { flow_id: Number(flow.id) } }))));
  return listed
    .filter((_, index) => isNamedIn(device, designs[index]))
    .map((flow) => ({ kind: "flow", name: flow.name, href: `#/flows/${flow.id}` }));
}

async function findDashboards(device: DeviceDetail): Promise<Use[]> {
  const found = await request(searchDashboards({ body: {} }));
  const listed = found.slice(0, LOOKED_THROUGH);
  const uses = await Promise.all(
    listed.map(async (dashboard): Promise<Use[]> => {
      const canvases = await request(listCanvases({ path: { dashboard_id: Number(dashboard.dashboard_id) } }));
      const shown = await Promise.all(canvases.map((one) => request(getCanvas({ path: { canvas_id: Number(one.canvas_id) } }))));
      return isNamedIn(device, shown) ? [{ kind: "dashboard", name: dashboard.name, href: `#/dashboards/${dashboard.dashboard_id}` }] : [];
    }),
  );
  return uses.flat();
}

/** Roles that show the device by itself, with its integration, or with its group. */
async function findRoles({ id, name, group_id }: DeviceDetail): Promise<Use[]> {
  const found = rowsOf(await request(searchRoles({ body: { page_size: LOOKED_THROUGH, page_number: 1 } })));
  const uses = await Promise.all(
    found.map(async ({ role_id, name: role }): Promise<Use[]> => {
      const path = { role_id: Number(role_id) };
      const [devices, groups] = await Promise.all([
        request(listRoleDevices({ path, body: { keyword: name, page_size: 100, page_number: 1 } })),
        request(listRoleResources({ path, body: { resource_type: "DEVICE_GROUP", page_size: GROUPS, page_number: 1 } })),
      ]);
      const shows = rowsOf(devices).some((one) => one.device_id === id) || rowsOf(groups).some((one) => one.resource_id === group_id);
      return shows ? [{ kind: "role", name: role, href: `#/people/roles/${role_id}` }] : [];
    }),
  );
  return uses.flat();
}

/** Rules of alarms, flows and dashboards that name the device, and roles that show it. */
export async function findUses(device: DeviceDetail): Promise<Use[]> {
  const found = await Promise.all([
    session.may("device.view") ? findRules(device) : [],
    session.may("workflow.view") ? findFlows(device) : [],
    session.may("dashboard.view") ? findDashboards(device) : [],
    session.user?.super_admin ? findRoles(device) : [],
  ]);
  return found.flat();
}
