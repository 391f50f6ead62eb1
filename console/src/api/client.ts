/** Calls of the platform: with the token of the session, and one way to fail. */
import type { Profile } from "./generated";
import { getCurrentUser } from "./generated";
import { client } from "./generated/client.gen";
import { localization, t } from "../i18n/index.svelte";
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
    readable(envelope?.error_message ?? (response ? t("failure.status", { status: String(response.status) }) : error instanceof TypeError ? t("failure.offline") : String(error))),
    response?.status ?? 0,
    envelope?.request_id ?? response?.headers.get("x-request-id") ?? "",
    envelope?.error_code,
    faultsOf(envelope),
  );
}

/** Return the faults of an error answer: several are in its data, a single one is in its detail. */
function faultsOf(envelope: Envelope | null): Fault[] {
  const single = envelope?.detail_message ? [{ field: envelope.detail_message, reason: envelope.error_message ?? "" }] : [];
  const faults = Array.isArray(envelope?.data) ? envelope.data : single;
  return readableFaults(faults.filter((fault): fault is Fault => typeof fault?.field === "string" && typeof fault.reason === "string"));
}

/** Return a message of the API in the user's language, as far as it is known. */
export function readable(message: string): string {
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
