/** Properties of a device, and how their values read. */
import type { DeviceDetail, DeviceEntity } from "../../api/generated";
import { number, t } from "../../i18n/index.svelte";

interface Attribute {
  unit?: string;
  enum?: Record<string, string>;
}

/** The properties that hold a value themselves: a STRUCT is shown by its members. */
export function properties(entities: DeviceEntity[]): DeviceEntity[] {
  return entities.filter((one) => one.type === "PROPERTY" && one.value_type !== "OBJECT");
}

export function isNumeric(entity: DeviceEntity): boolean {
  return ["LONG", "DOUBLE"].includes(entity.value_type) && !(entity.value_attribute as Attribute).enum;
}

/** The id that a device's entity has in its TSL. */
export function memberId(device: DeviceDetail, entity: DeviceEntity): string {
  return entity.key.slice(device.key.length + 1);
}

export function unitOf(entity: DeviceEntity): string {
  return (entity.value_attribute as Attribute).unit ?? "";
}

/** A value as people read it: with its unit, and by its name where it has one. */
export function shown(entity: DeviceEntity, value: unknown): string {
  if (value === null || value === undefined) return "–";
  const { unit, enum: names } = entity.value_attribute as Attribute;
  if (names) return names[String(value)] ?? String(value);
  if (typeof value === "number") return unit ? `${number(value)} ${unit}` : number(value);
  if (typeof value === "boolean") return t(value ? "tsl.true" : "tsl.false");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
