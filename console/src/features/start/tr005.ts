/** QR codes on LoRaWAN devices: TR005 of the LoRa Alliance, `LW:D0:JoinEUI:DevEUI:ProfileID[:O…][:S…][:P…][:C…]`. */

export interface Label {
  joinEui: string;
  devEui: string;
  /** Of the maker, and of its profile of the device: four hex digits each. */
  vendor: string;
  profile: string;
  /** Proves to a join server whose the device is. */
  owner: string;
  serial: string;
  proprietary: string;
}
/** Why a text is no such code: words of the catalogue, and what they name. */
export interface LabelFault {
  fault: `qr.${"no-label" | "schema" | "short" | "join-eui" | "dev-eui" | "profile" | "field" | "twice" | "checksum"}`;
  values: Record<string, string>;
}

const EXTENSIONS = { O: "owner", S: "serial", P: "proprietary", C: "checksum" } as const;
/** What QR codes have in their alphanumeric mode. */
const WRITABLE = /^[0-9A-Z $%*+./-]+$/;

export const isLabel = (text: string): boolean => /^\s*LW:/i.test(text);

/** What stands in a code. Scanners may have changed its case, which it has none of. */
export function readLabel(text: string): Label | LabelFault {
  const code = text.trim().toUpperCase();
  const no = (fault: LabelFault["fault"], values: Record<string, string> = {}): LabelFault => ({ fault, values });
  const [preface, schema = "", joinEui, devEui, profileId, ...more] = code.split(":");
  if (preface !== "LW") return no("qr.no-label");
  if (schema !== "D0") return no("qr.schema", { schema });
  if (joinEui === undefined || devEui === undefined || profileId === undefined) return no("qr.short");
  if (!/^[0-9A-F]{16}$/.test(joinEui)) return no("qr.join-eui", { text: joinEui });
  if (!/^[0-9A-F]{16}$/.test(devEui)) return no("qr.dev-eui", { text: devEui });
  if (!/^[0-9A-F]{8}$/.test(profileId)) return no("qr.profile", { text: profileId });
  const found = { owner: "", serial: "", proprietary: "", checksum: "" };
  for (const field of more) {
    const name = EXTENSIONS[field[0] as keyof typeof EXTENSIONS];
    if (!name || !WRITABLE.test(field)) return no("qr.field", { text: field });
    if (found[name]) return no("qr.twice", { text: field[0]! });
    found[name] = field.slice(1);
  }
  const { checksum, ...rest } = found;
  if (checksum && checksum !== crc(code.slice(0, code.lastIndexOf(":C")))) return no("qr.checksum");
  return { joinEui, devEui, vendor: profileId.slice(0, 4), profile: profileId.slice(4), ...rest };
}

/** CRC-16/MODBUS, of which TR005 makes its checksum: four hex digits. */
function crc(text: string): string {
  let sum = 0xffff;
  for (const sign of text) {
    sum ^= sign.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >> 1) ^ 0xa001 : sum >> 1;
  }
  return sum.toString(16).toUpperCase().padStart(4, "0");
}
