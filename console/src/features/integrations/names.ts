/** Names of the integrations that the platform includes. Others keep the texts that the platform sends. */
import { readable } from "../../api/client";
import type { EntityMeta, EntityResponse, IntegrationDetail } from "../../api/generated";
import { localization, translateIfKnown } from "../../i18n/index.svelte";
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

interface Texts {
  name: string;
  description?: string | null;
  /** Unit, bounds and choices. */
  attribute: Record<string, unknown>;
}

/** Return a function that translates texts of entities of the integrations that the platform includes. Names that users entered stay. */
async function loadTranslator(): Promise<(key: string, texts: Texts) => Texts> {
  if (localization.language !== "zh") return (_, texts) => texts;
  const { names, members } = await import("./entities.zh");
  return (key, texts) => {
    const [integration = "", kind, ...path] = key.split(".");
    if (kind !== "integration" || !translateIfKnown(`integration.text.${integration}`)) return texts;
    const member = path.join(".");
    const [description, choices] = members[`${integration}.${member}`] ?? members[member] ?? [texts.description];
    return {
      name: names[texts.name] ?? texts.name,
      description,
      attribute: choices ? { ...texts.attribute, enum: { ...enumNames(texts.attribute), ...choices } } : texts.attribute,
    };
  };
}

/** Translate the entities of an integration that the platform includes. */
export async function translateEntities(found: IntegrationDetail): Promise<IntegrationDetail> {
  const translate = await loadTranslator();
  const integration_entities = found.integration_entities.map((entity) => {
    const { name, description, attribute } = translate(entity.key, { ...entity, attribute: entity.value_attribute });
    const hasReasons = REASONS.has(entity.key.split(".").slice(2).join(".")) && typeof entity.value === "string";
    const value = hasReasons ? (entity.value as string).split("\n").map(readable).join("\n") : entity.value;
    return { ...entity, name, description, value, value_attribute: attribute };
  });
  return { ...found, integration_entities };
}

type Row = Pick<EntityResponse, "entity_key" | "entity_name" | "entity_value_attribute" | "integration_name">;

/** Translate the names of integrations and of their entities in a list of entities. */
export async function translateNames<T extends Row>(rows: T[]): Promise<T[]> {
  const translate = await loadTranslator();
  return rows.map((row) => {
    const { name, attribute } = translate(row.entity_key, { name: row.entity_name, attribute: row.entity_value_attribute });
    const [integration = ""] = row.entity_key.split(".");
    const integration_name = row.integration_name && integrationName(integration, row.integration_name);
    return { ...row, entity_name: name, entity_value_attribute: attribute, integration_name };
  });
}

/** Translate the texts of one entity. */
export async function translateMeta(meta: EntityMeta): Promise<EntityMeta> {
  const { name, description, attribute } = (await loadTranslator())(meta.key, { ...meta, attribute: meta.value_attribute });
  return { ...meta, name, description, value_attribute: attribute };
}
