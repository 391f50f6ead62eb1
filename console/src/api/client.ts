/** Calls of the platform: with the token of the session, and one way to fail. */
import type { Profile } from "./generated";
import { getCurrentUser } from "./generated";
import { client } from "./generated/client.gen";
import { localization, t, translateIfKnown, type Key } from "../i18n/index.svelte";
import { plainReason, translateReason } from "../i18n/reasons";
import { connection } from "../live/connection.svelte";
import { session } from "./session.svelte";

/** An error that the platform returned, or that its absence caused. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** Says in the logs of the platform which request it was. */
    readonly requestId: string,
    readonly code: string = "",
    /** The rejected fields of the request with reasons, under the names of the request. */
    readonly faults: Fault[] = [],
  ) {
    super(message);
  }
}

export interface Fault {
  field: string;
  reason: string;
}

interface Envelope {
  data?: unknown;
  request_id?: string;
  error_code?: string;
  error_message?: string;
  detail_message?: string;
}

/** Labels of fields in forms, by the names of the platform. */
const LABELS: Record<string, Key> = {
  device_offline_timeout: "products.timeout",
  history_days: "products.days",
  location_property: "products.place",
  identifier: "entities.identifier",
  name: "dialog.name",
  description: "dialog.description",
};
const REACHED_LIMIT = /^(\w+): the tenant has (\d+) of these, which is its limit$/;

type Answer<T> = Promise<{ data?: { data?: T | null }; error?: unknown; response?: Response }>;

client.setConfig({ baseUrl: "", auth: async () => (await session.token()) ?? undefined, fetch: fetchSignedIn });

/** Send a request. When its session has ended, wait until the user has signed in again, and send it once more. */
async function fetchSignedIn(sent: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const request = new Request(sent, init);
  const again = request.clone();
  const answer = await fetch(request).catch((error: unknown) => {
    if (error instanceof TypeError) connection.unanswered();
    throw error;
  });
  connection.answered();
  const rejected = request.headers.get("Authorization")?.slice("Bearer ".length);
  if (answer.status !== 401 || !rejected) return answer;
  const token = await session.replace(rejected);
  if (!token) return answer;
  again.headers.set("Authorization", `Bearer ${token}`);
  return fetch(again);
}

/** The data of an answer. Throws `Failure`. */
export async function request<T>(call: Answer<T>): Promise<T> {
  const { data, error, response } = await call;
  if (response?.ok) return data?.data as T;
  throw failureOf(error, response);
}

/** The file in an answer: `requestFile(exportAlarms({ parseAs: "blob" }))`. Throws `Failure`. */
export async function requestFile(call: Promise<{ data?: unknown; error?: unknown; response?: Response }>): Promise<Blob> {
  const { data, error, response } = await call;
  if (response?.ok) return data as Blob;
  throw failureOf(error, response);
}

/** Have the browser keep a file. */
export function saveFile(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}

function failureOf(error: unknown, response?: Response): Failure {
  const envelope = (typeof error === "object" ? error : null) as Envelope | null;
  return new Failure(
    labelled(envelope?.error_message ?? (response ? t("failure.status", { status: String(response.status) }) : error instanceof TypeError ? t("failure.offline") : String(error))),
    response?.status ?? 0,
    envelope?.request_id ?? response?.headers.get("x-request-id") ?? "",
    envelope?.error_code,
    faultsOf(envelope),
  );
}

/** Return the faults of an error answer: several are in its data, a single one is in its detail. */
function faultsOf(envelope: Envelope | null): Fault[] {
  const listed: unknown[] = Array.isArray(envelope?.data) ? envelope.data : [];
  const faults = listed.filter((fault): fault is Fault => typeof (fault as Fault | null)?.field === "string" && typeof (fault as Fault).reason === "string");
  const { detail_message: field, error_message: reason = "" } = envelope ?? {};
  if (faults.length || !field) return readableFaults(faults);
  return [{ field, reason: withoutField(readable(reason), field) }];
}

/** Return a message of the API in the user's language, with the label of a field instead of its name. */
function labelled(message: string): string {
  const text = readable(message);
  const [, field, reason] = /^(\w+)(?:: |：)(.+)$/s.exec(text) ?? [];
  const label = field && LABELS[field];
  return label && reason ? t("failure.field", { name: t(label), reason }) : text;
}

/** Return a reason without the name of its field in front of it, because the field shows it. */
function withoutField(reason: string, field: string): string {
  const names = [field, field.slice(field.lastIndexOf(".") + 1)];
  const prefix = names.flatMap((name) => [`${name}: `, `${name}：`]).find((prefix) => reason.startsWith(prefix));
  return prefix ? reason.slice(prefix.length) : reason;
}

/** Return a message of the API in the user's language, as far as it is known. */
export function readable(message: string): string {
  const [, limit, maximum] = REACHED_LIMIT.exec(message) ?? [];
  const name = limit && translateIfKnown(`limit.${limit}`);
  if (name) return t("failure.limit", { name, maximum: Number(maximum) });
  return localization.language === "zh" ? translateReason(message) : plainReason(message);
}

/** Return faults with their reasons in the user's language, as far as they are known. */
export function readableFaults<T extends Fault>(faults: T[]): T[] {
  return faults.map((fault) => ({ ...fault, reason: readable(fault.reason) }));
}

/** Learn who is signed in. */
export async function loadUser(): Promise<void> {
  session.enter((await request(getCurrentUser())) as Profile);
}

/** Go on with the session that the page had before, if it had one. */
export async function resumeSession(): Promise<void> {
  if (await session.token()) await loadUser();
}
