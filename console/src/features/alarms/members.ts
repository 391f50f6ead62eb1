/** Properties and events that a rule may name: those of the device, or of a device of the product. */
import { request } from "../../api/client";
import { findDevices, getDeviceDetail } from "../../api/generated";

export interface Member {
  id: string;
  name: string;
}
export interface Members {
  properties: Member[];
  events: Member[];
}

const NONE: Members = { properties: [], events: [] };

/** They are suggestions: without a device there are none, and any name may be typed. */
export async function members({ device, product }: { device?: string; product?: string }): Promise<Members> {
  const id = device || (product ? await firstOf(product) : undefined);
  if (!id) return NONE;
  const { key, entities } = await request(getDeviceDetail({ path: { device_id: Number(id) } }));
  const of = (type: string) =>
    entities
      .filter((one) => one.type === type)
      .map((one) => ({ id: one.key.slice(key.length + 1), name: one.name }))
      .filter((one) => type === "PROPERTY" || !one.id.includes("."));
  return { properties: of("PROPERTY"), events: of("EVENT") };
}

async function firstOf(model: string): Promise<string | undefined> {
  return (await request(findDevices({ body: { model: [model], page_size: 1, page_number: 1 } }))).content[0]?.id;
}
