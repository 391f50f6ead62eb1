/** Requests to add a device, and its login details. */
import { request } from "../../api/client";
import {
  createDevice,
  getDeviceTsl,
  issueDeviceCredentials,
  type DeviceCredentials,
  type DeviceResponse,
  type TslDocument,
} from "../../api/generated";
import { search } from "../devices/search";

export const GENERIC = "generic";
/** An SN that nobody has thought of yet. */
export function inventSerial(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(5));
  return `DEV${[...bytes].map((one) => one.toString(16).padStart(2, "0")).join("")}`.toUpperCase();
}

export interface Added {
  device: DeviceResponse;
  credentials: DeviceCredentials;
  tsl: TslDocument;
}

/** Add a device that an integration knows by `sn`, with the inputs of its service by their keys. */
export async function addDevice(integration: string, name: string, param_entities: Record<string, unknown>, sn: string): Promise<DeviceResponse> {
  await request(createDevice({ body: { name, integration, param_entities } }));
  const device = (await search({ identifier: sn, page_size: 10, page_number: 1 })).content.find((one) => one.identifier.toUpperCase() === sn.toUpperCase());
  if (!device) throw new Error(sn);
  return device;
}

/** Add a device that connects itself, with a key; the key is seen only here. */
export async function addDirect(name: string, sn: string, model: string): Promise<Added> {
  const inputs = { "direct.integration.add_device.sn": sn, "direct.integration.add_device.model": model };
  const device = await addDevice("direct", name, inputs, sn);
  const path = { device_id: Number(device.id) };
  const [credentials, tsl] = await Promise.all([request(issueDeviceCredentials({ path })), request(getDeviceTsl({ path }))]);
  return { device, credentials, tsl };
}

/** Add a virtual device of a product, which reports every `interval` seconds. */
export async function addSimulated(name: string, model: string, interval: number): Promise<void> {
  const param_entities = { "simulator.integration.add_device.model": model, "simulator.integration.add_device.interval": interval };
  await request(createDevice({ body: { name, integration: "simulator", param_entities } }));
}
