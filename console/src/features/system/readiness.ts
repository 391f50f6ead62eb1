/** Readiness of the gateway and of the services behind it (`/readyz`). */
import { Failure } from "../../api/client";
import { t } from "../../i18n/index.svelte";

export interface Service {
  name: string;
  ready: boolean;
  /** Why it is not ready, as the service states it. The gateway states reasons only on the port for operators. */
  reason: string;
  version?: string;
}

/** Every part that the platform needs, those that are not ready first. */
export async function readiness(): Promise<Service[]> {
  const [answer, health] = await Promise.all([fetch("/readyz"), fetch("/healthz")]).catch(() => {
    throw new Failure(t("failure.offline"), 0, "");
  });
  const states = (await answer.json()) as Record<string, string>;
  const { version } = (await health.json()) as { version: string };
  const services = Object.entries(states).map(([name, state]) => service(name, state));
  return [{ name: "gateway", ready: true, reason: "", version }, ...services].sort((one, other) => Number(one.ready) - Number(other.ready));
}

/** A state is `ok`, `ok: 0.2.0`, `not ready`, or `not ready: ` and the reason. */
function service(name: string, state: string): Service {
  const [, version] = /^ok: (.+)$/.exec(state) ?? [];
  const [, reason = ""] = /^not ready: (.+)$/s.exec(state) ?? [];
  return { name, ready: state === "ok" || version !== undefined, reason, version };
}
