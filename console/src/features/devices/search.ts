/** Searches of devices. */
import { ask } from "../../api/client";
import { findDevices, type FindDevices, type ShownDevicePage } from "../../api/generated";

export function search(wanted: FindDevices): Promise<ShownDevicePage> {
  return ask(findDevices({ body: wanted }));
}

/** How many devices a search finds. */
export async function count(wanted: FindDevices): Promise<number> {
  return (await search({ ...wanted, page_size: 1 })).total;
}
