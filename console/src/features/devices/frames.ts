/** Frames of a device and their link quality. */
import type { DeviceDetail, FrameRecord, Reception } from "../../api/generated";
import type { Series } from "../../lib/Chart.svelte";
import { formatValue } from "../../lib/values";
import { memberId, formatProperty } from "./values";

/** Return a key that identifies a frame. */
export const keyOf = ({ ts, session, counter }: FrameRecord): string => `${ts} ${session} ${counter}`;

/** Return the reception of the gateway with the strongest signal. */
export function strongestReception({ gateways = [] }: FrameRecord): Reception | undefined {
  return gateways.toSorted((one, other) => (other.rssi ?? -Infinity) - (one.rssi ?? -Infinity))[0];
}

/** RSSI and SNR over time, of frames that come newest first. */
export function linkSeries(frames: FrameRecord[]): Series[] {
  const heard = frames.map((frame) => ({ ts: frame.ts, ...strongestReception(frame) })).reverse();
  const series = ([["RSSI", "dBm", "rssi"], ["SNR", "dB", "snr"]] as const).map(([label, unit, name]) => {
    const known = heard.filter((one) => typeof one[name] === "number");
    return { label, unit, times: known.map((one) => one.ts), values: known.map((one) => one[name] as number) };
  });
  return series.filter(({ times }) => times.length);
}

/** Values with the names and units of their members; those of a STRUCT each by itself. `begin` is the path above them. */
export function namedValues(device: DeviceDetail, values: Record<string, unknown>, begin = ""): [string, string][] {
  const known = new Map(device.entities.map((one) => [memberId(device, one), one]));
  const named = (of: object, begin: string): [string, string][] =>
    Object.entries(of).flatMap(([key, value]: [string, unknown]) => {
      if (value && typeof value === "object" && !Array.isArray(value)) return named(value, `${begin}${key}.`);
      const entity = known.get(begin + key);
      return [[entity?.name ?? begin + key, entity ? formatProperty(entity, value) : formatValue(value)]];
    });
  return named(values, begin);
}
