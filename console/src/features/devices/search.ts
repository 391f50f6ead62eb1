/** Searches of devices. */
import { request } from "../../api/client";
import { findDevices, type FindDevices, type DeviceResponsePage } from "../../api/generated";
import type { Option } from "../../lib/Combobox.svelte";

/** Devices that are offered to choose from. */
const OFFERED = 50;

export function search(wanted: FindDevices): Promise<DeviceResponsePage> {
  return request(findDevices({ body: wanted }));
}

/** How many devices a search finds. */
export async function count(wanted: FindDevices): Promise<number> {
  return (await search({ ...wanted, page_size: 1 })).total;
}

/** Devices by words, to choose from: all, or those of a product. */
export async function devicesLike(text: string, model?: string): Promise<Option[]> {
  const found = await search({ name: text || null, model: model ? [model] : null, page_size: OFFERED, page_number: 1 });
  return found.content.map((one) => ({ value: one.id, label: one.name, note: one.identifier }));
}
