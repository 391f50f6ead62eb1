/** What of the platform uses a device, as far as the APIs tell who asks. */
import { ask } from "../../api/client";
import {
  getCanvas,
  getDesign,
  listCanvases,
  searchAlarmRules,
  searchDashboards,
  searchFlows,
  type DeviceDetail,
} from "../../api/generated";
import { session } from "../../api/session.svelte";

export interface Use {
  kind: "flow" | "rule" | "dashboard";
  name: string;
  href: string;
}

/** Flows and dashboards whose content is looked through. */
const LOOKED_THROUGH = 50;

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
  const listed = "content" in found ? found.content : found;
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

/** Rules of alarms, flows and dashboards that name the device. */
export async function uses(device: DeviceDetail): Promise<Use[]> {
  const found = await Promise.all([
    session.may("device.view") ? rules(device) : [],
    session.may("workflow.view") ? flows(device) : [],
    session.may("dashboard.view") ? dashboards(device) : [],
  ]);
  return found.flat();
}
