/**
 * QR codes on LoRaWAN devices: TR005 of the LoRa Alliance, `LW:D0:JoinEUI:DevEUI:ProfileID[:O…][:S…][:P…][:C…]`,
 * and what makers print besides: `DevEUI:JoinEUI`, or fields with their names.
 */

export interface Label {
  /** Empty when the code has none. */
  joinEui: string;
  devEui: string;
  /** Empty when the code has none, as TR005. */
  appKey: string;
  /** Ids of the vendor and of its device profile, four hex digits each. */
  vendor: string;
  profile: string;
  /** Proves to a join server whose the device is. */
  owner: string;
  serial: string;
  proprietary: string;
}
/** A reason why a text is not a valid code: a key of the catalogue, with its values. */
export interface LabelFault {
  fault: `qr.${"no-label" | "schema" | "short" | "join-eui" | "dev-eui" | "profile" | "field" | "twice" | "checksum"}`;
  values: Record<string, string>;
}

/** A DevEUI, a JoinEUI and perhaps an AppKey, in this order. */
const PLAIN = /^([0-9A-F]{16})[\s:;,|/-]+([0-9A-F]{16})(?:[\s:;,|/-]+([0-9A-F]{32}))?$/;
const NAMED = {
  devEui: /DEV[ _-]?EUI\W*((?:[0-9A-F]{2}[-: ]?){7}[0-9A-F]{2})(?![0-9A-F])/,
  joinEui: /(?:JOIN|APP)[ _-]?EUI\W*((?:[0-9A-F]{2}[-: ]?){7}[0-9A-F]{2})(?![0-9A-F])/,
  appKey: /APP[ _-]?KEY\W*([0-9A-F]{32})(?![0-9A-F])/,
};
const EXTENSIONS = { O: "owner", S: "serial", P: "proprietary", "%": "proprietary", C: "checksum" } as const;
/** How codes of the draft of TR005 begin; what follows is the same. */
const DRAFT = /^URN:LW:DP:/;
/** Characters of the alphanumeric mode of QR codes. */
const WRITABLE = /^[0-9A-Z $%*+./-]+$/;

const isLabel = (text: string): boolean => /^\s*(URN:)?LW:/i.test(text);

/** Return whether a text is a code and not only a DevEUI. */
export const isCode = (text: string): boolean => isLabel(text) || plainLabel(text) !== null;

/** Read a code of any of the forms above. */
export const readCode = (text: string): Label | LabelFault => plainLabel(text) ?? readLabel(text);

/** The EUIs of a code that is not TR005; null when there is no DevEUI. */
export function plainLabel(text: string): Label | null {
  const code = text.trim().toUpperCase();
  if (isLabel(code)) return null;
  const [, first, second, third] = PLAIN.exec(code) ?? [];
  const named = (name: keyof typeof NAMED): string => (NAMED[name].exec(code)?.[1] ?? "").replace(/[-: ]/g, "");
  const found = first ? { devEui: first, joinEui: second!, appKey: third ?? "" } : { devEui: named("devEui"), joinEui: named("joinEui"), appKey: named("appKey") };
  return found.devEui ? { ...found, vendor: "", profile: "", owner: "", serial: "", proprietary: "" } : null;
}

/** Parse a code of TR005. Its case is ignored, because scanners may change it. */
export function readLabel(text: string): Label | LabelFault {
  const code = text.trim().toUpperCase().replace(DRAFT, "LW:D0:");
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
  return { joinEui, devEui, appKey: "", vendor: profileId.slice(0, 4), profile: profileId.slice(4), ...rest };
}

/** Return the checksum of TR005 (CRC-16/MODBUS) as four hex digits. */
function crc(text: string): string {
  let sum = 0xffff;
  for (const sign of text) {
    sum ^= sign.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >> 1) ^ 0xa001 : sum >> 1;
  }
  return sum.toString(16).toUpperCase().padStart(4, "0");
}
