/** What of the platform uses a device, as far as the APIs tell who asks. */
import { ask } from "../../api/client";
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

/** Whether something names the device: its key, or one of its entities. */
function names(device: DeviceDetail, content: unknown): boolean {
  const text = JSON.stringify(content);
  return text.includes(device.key) || device.entities.some((one) => text.includes(`"${one.id}"`));
}

async function rules(device: DeviceDetail): Promise<Use[]> {
  const { content } = await ask(searchAlarmRules({ body: { device_id: device.id, page_size: LOOKED_THROUGH, page_number: 1 } }));
  return content.map((rule) => ({ kind: "rule", name: rule.name, href: "#/alarms/rules" }));
}

async function flows(device: DeviceDetail): Promise<Use[]> {
  const found = await ask(searchFlows({ body: { page_size: LOOKED_THROUGH, page_number: 1 } }));
  const listed = rowsOf(found);
  const designs = await Promise.all(listed.map((flow) => ask(getDesign({ path: { flow_id: Number(flow.id) } }))));
  return listed
    .filter((_, index) => names(device, designs[index]))
    .map((flow) => ({ kind: "flow", name: flow.name, href: `#/flows/${flow.id}` }));
}

async function dashboards(device: DeviceDetail): Promise<Use[]> {
  const found = await ask(searchDashboards({ body: {} }));
  const listed = found.slice(0, LOOKED_THROUGH);
  const uses = await Promise.all(
    listed.map(async (dashboard): Promise<Use[]> => {
      const canvases = await ask(listCanvases({ path: { dashboard_id: Number(dashboard.dashboard_id) } }));
      const shown = await Promise.all(canvases.map((one) => ask(getCanvas({ path: { canvas_id: Number(one.canvas_id) } }))));
      return names(device, shown) ? [{ kind: "dashboard", name: dashboard.name, href: `#/dashboards/${dashboard.dashboard_id}` }] : [];
    }),
  );
  return uses.flat();
}

/** Roles that show the device by itself, with its integration, or with its group. */
async function roles({ id, name, group_id }: DeviceDetail): Promise<Use[]> {
  const found = rowsOf(await ask(searchRoles({ body: { page_size: LOOKED_THROUGH, page_number: 1 } })));
  const uses = await Promise.all(
    found.map(async ({ role_id, name: role }): Promise<Use[]> => {
      const path = { role_id: Number(role_id) };
      const [devices, groups] = await Promise.all([
        ask(listRoleDevices({ path, body: { keyword: name, page_size: 100, page_number: 1 } })),
        ask(listRoleResources({ path, body: { resource_type: "DEVICE_GROUP", page_size: GROUPS, page_number: 1 } })),
      ]);
      const shows = rowsOf(devices).some((one) => one.device_id === id) || rowsOf(groups).some((one) => one.resource_id === group_id);
      return shows ? [{ kind: "role", name: role, href: `#/people/roles/${role_id}` }] : [];
    }),
  );
  return uses.flat();
}

/** Rules of alarms, flows and dashboards that name the device, and roles that show it. */
export async function uses(device: DeviceDetail): Promise<Use[]> {
  const found = await Promise.all([
    session.may("device.view") ? rules(device) : [],
    session.may("workflow.view") ? flows(device) : [],
    session.may("dashboard.view") ? dashboards(device) : [],
    session.user?.super_admin ? roles(device) : [],
  ]);
  return found.flat();
}
