const PRESET = ".integration.preset";
const OWN = "custom";
const POINTERS = ["device", "data", "encoding", "port", "time", "counter", "session", "rssi", "snr", "gateway", "data_rate", "frequency"];

/** The key of the setting that chooses a network server by its name, if an integration has one. */
export const presetOf = (keys: string[]): string | undefined => keys.find((key) => key.endsWith(PRESET));

/** Return whether a setting has no effect, such as a JSON pointer when a preset is chosen. */
export function isIdle(key: string, texts: Record<string, string>): boolean {
  const preset = presetOf(Object.keys(texts));
  if (!preset || !texts[preset] || texts[preset] === OWN) return false;
  return POINTERS.some((name) => key === preset.replace(PRESET, `.integration.${name}`));
}
