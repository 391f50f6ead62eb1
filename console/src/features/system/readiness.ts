/** Readiness of the gateway and of the services behind it (`/readyz`). */
import { Failure } from "../../api/client";
import { t } from "../../i18n/index.svelte";

export interface Service {
  name: string;
  ready: boolean;
  /** In the words of the service. */
  state: string;
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
  return [{ name: "gateway", ready: true, state: "ok", version }, ...services].sort((one, other) => Number(one.ready) - Number(other.ready));
}

/** A state is `ok`, `ok: 0.2.0`, or why the part is not ready. */
function service(name: string, state: string): Service {
  const [, version] = /^ok: (.+)$/.exec(state) ?? [];
  return { name, ready: state === "ok" || version !== undefined, state, version };
}
