/** Properties of a device, and how their values read. */
import type { DeviceDetail, DeviceEntity } from "../../api/generated";
import { enumNames, formatValue } from "../../lib/values";

/** The properties that hold a value themselves: a STRUCT is shown by its members. */
export function properties(entities: DeviceEntity[]): DeviceEntity[] {
  return entities.filter((one) => one.type === "PROPERTY" && one.value_type !== "OBJECT");
}

export function isNumeric(entity: DeviceEntity): boolean {
  return ["LONG", "DOUBLE"].includes(entity.value_type) && !enumNames(entity.value_attribute);
}

/** The id that a device's entity has in its TSL. */
export function memberId(device: DeviceDetail, entity: DeviceEntity): string {
  return entity.key.slice(device.key.length + 1);
}

/** A value as people read it. */
export function formatProperty(entity: DeviceEntity, value: unknown): string {
  return formatValue(value, entity.value_attribute);
}

const EVENT = "@event";

/** The events of a device's TSL; `path` is that of the event's entity. */
export function eventsOf(device: DeviceDetail): { id: string; path: string; name: string }[] {
  const kinds = device.entities.filter((one) => one.type === "EVENT" && !memberId(device, one).includes("."));
  return kinds.map((one) => {
    const path = memberId(device, one);
    return { id: path.endsWith(EVENT) ? path.slice(0, -EVENT.length) : path, path, name: one.name };
  });
}
