/** Names of the integrations that the platform includes. Others keep the texts that the platform sends. */
import type { IntegrationDetail } from "../../api/generated";
import { localization, translateIfKnown } from "../../i18n/index.svelte";
import { translateReason } from "../../i18n/reasons";
import { enumNames } from "../../lib/values";

/** Return the name of an integration; `sent` is the platform's text. */
export function integrationName(id: string, sent: string): string {
  return translateIfKnown(`integration.name.${id}`) ?? sent;
}

/** Return what an integration connects; `sent` is the platform's text. */
export function integrationText(id: string, sent: string): string {
  return translateIfKnown(`integration.text.${id}`) ?? sent;
}

/** Properties with reasons of the platform, one a line. */
const REASONS = new Set(["last_error", "not_taken"]);

/** Translate the entities of an integration that the platform includes. */
export async function translateEntities(found: IntegrationDetail): Promise<IntegrationDetail> {
  if (localization.language !== "zh" || !translateIfKnown(`integration.text.${found.id}`)) return found;
  const { entities } = await import("./entities.zh");
  const integration_entities = found.integration_entities.map((one) => {
    const id = one.key.split(".").slice(2).join(".");
    const [name, description, choices] = entities[id] ?? [one.name, one.description];
    const value = REASONS.has(id) && typeof one.value === "string" ? one.value.split("\n").map(translateReason).join("\n") : one.value;
    const value_attribute = choices ? { ...one.value_attribute, enum: { ...enumNames(one.value_attribute), ...choices } } : one.value_attribute;
    return { ...one, name, description: description ?? one.description, value, value_attribute };
  });
  return { ...found, integration_entities };
}

/** Translate names of entities of the integrations that the platform includes, as lists of all entities show them. */
export async function translateNames<T extends { entity_key: string; entity_name: string; integration_name?: string | null }>(rows: T[]): Promise<T[]> {
  if (localization.language !== "zh") return rows;
  const { entities } = await import("./entities.zh");
  return rows.map((row) => {
    const [integration = "", kind, ...id] = row.entity_key.split(".");
    if (!translateIfKnown(`integration.text.${integration}`)) return row;
    const entity_name = (kind === "integration" && entities[id.join(".")]?.[0]) || row.entity_name;
    return { ...row, entity_name, integration_name: integrationName(integration, row.integration_name ?? "") };
  });
}
