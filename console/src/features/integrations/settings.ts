const PRESET = ".integration.preset";
const OWN = "custom";
const POINTERS = ["device", "data", "encoding", "port", "time", "counter", "session", "rssi", "snr", "gateway", "data_rate", "frequency"];

/** The key of the setting that chooses a network server by its name, if an integration has one. */
export const presetOf = (keys: string[]): string | undefined => keys.find((key) => key.endsWith(PRESET));

/** Whether a setting has no effect: JSON pointers, when a preset says where the fields are. */
export function isIdle(key: string, texts: Record<string, string>): boolean {
  const preset = presetOf(Object.keys(texts));
  if (!preset || !texts[preset] || texts[preset] === OWN) return false;
  return POINTERS.some((name) => key === preset.replace(PRESET, `.integration.${name}`));
}
