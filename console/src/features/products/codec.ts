/** A codec as its editor has it. */
import type { CodecArgument, CodecExample, ProductCodec, PutCodec, CodecStep } from "../../api/generated";

export interface Draft {
  /** Texts by name. */
  scripts: Record<string, string>;
  /** Which functions are called, as JSON; "" when their names say it. */
  chains: string;
  examples: CodecExample[];
}

/** The name that the platform gives to a script that comes alone. */
const ALONE = "script";
const PAYLOAD: CodecArgument = { id: "bytes", payload: true };
/** Entry points that are found by name, with their arguments. */
const BY_NAME: Record<string, CodecArgument[]> = {
  decodeUplink: [{ id: "input" }],
  Decode: [{ id: "fPort" }, PAYLOAD],
  Decoder: [PAYLOAD, { id: "port" }],
  encodeDownlink: [{ id: "input" }],
  Encode: [{ id: "fPort" }, { id: "obj", payload: true }],
  Encoder: [{ id: "obj", payload: true }, { id: "port" }],
};

export const NEW: Draft = {
  scripts: {
    [ALONE]: `function decodeUplink(input) {
  return { data: { temperature: (input.bytes[0] << 8 | input.bytes[1]) / 10 } };
}
`,
  },
  chains: "",
  examples: [],
};

function isByName(steps: CodecStep[]): boolean {
  const plain = (args: CodecArgument[]) => JSON.stringify(args.map(({ id, payload }) => [id, payload === true]));
  return steps.length < 2 && steps.every(({ entry, args }) => entry in BY_NAME && plain(BY_NAME[entry]!) === plain(args));
}

export function draftOf({ scripts, decoder, encoder, examples }: ProductCodec): Draft {
  const chains = isByName(decoder) && isByName(encoder) ? "" : JSON.stringify({ decoder, encoder }, null, 2);
  return { scripts, chains, examples };
}

/** Return the request body; null while the chains are not JSON, or all scripts are empty. */
export function bodyOf({ scripts, chains, examples }: Draft): PutCodec | null {
  if (!Object.values(scripts).some((text) => text.trim())) return null;
  const texts = Object.keys(scripts).join() === ALONE ? { script: scripts[ALONE] } : { scripts };
  try {
    return { ...texts, ...(chains.trim() ? (JSON.parse(chains) as PutCodec) : {}), examples };
  } catch {
    return null;
  }
}

/** Return whether two readings are equal in any order of keys. */
export function isSame(one: unknown, other: unknown): boolean {
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return one === other;
  const [a, b] = [one, other] as Record<string, unknown>[];
  return Object.keys(a!).length === Object.keys(b!).length && Object.keys(a!).every((key) => isSame(a![key], b![key]));
}

/** Bytes as people write them: `01 0xD7:00`; null when they are no pairs of hex digits. */
export function bytesOf(text: string): string | null {
  const digits = text.replace(/0x|[\s:,-]/gi, "");
  return /^([0-9a-f]{2})+$/i.test(digits) ? digits.toLowerCase() : null;
}
