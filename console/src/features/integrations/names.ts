/** Names of the integrations that the platform includes. Others keep the texts that the platform sends. */
import { readable, request } from "../../api/client";
import { searchEntities, searchEntitiesByColumns, type ColumnFilter, type EntityMeta, type EntityResponse, type IntegrationDetail, type SearchEntities } from "../../api/generated";
import { rowsOf, type Page } from "../../api/pages";
import { en } from "../../i18n/en";
import { localization, t, translateIfKnown, type Key } from "../../i18n/index.svelte";
import { appendRows, storedNames } from "../../lib/shownNames";
import { enumNames } from "../../lib/values";

/** Return the name of an integration; `sent` is the platform's text. */
export function integrationName(id: string, sent: string): string {
  return translateIfKnown(`integration.name.${id}`) ?? sent;
}

/** Return the texts that find integrations by `text`: it, and names that the platform stores. */
export function integrationKeywords(text: string): string[] {
  const keys = (Object.keys(en) as Key[]).filter((key) => key.startsWith("integration.name."));
  return [text, ...storedNames(Object.fromEntries(keys.map((key) => [en[key], t(key)])), text)];
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

/** A part of the keys of entities of integrations. */
const KEY_PART = ".integration.";

/** Return the names that the platform stores for entities of integrations whose shown names contain `text`. */
async function entityNames(text: string): Promise<string[]> {
  return localization.language === "zh" ? storedNames((await import("./entities.zh")).names, text) : [];
}

/** Search entities by a keyword, which may be part of a translated name. */
export async function findEntities(search: SearchEntities): Promise<EntityResponse[]> {
  const entity_names = await entityNames(search.keyword ?? "");
  const translated = { ...search, keyword: KEY_PART, entity_names };
  const bodies = entity_names.length ? [search, translated] : [search];
  const answers = await Promise.all(bodies.map((body) => request(searchEntities({ body }))));
  const [rows = [], others = []] = await Promise.all(answers.map((answer) => translateNames(rowsOf(answer))));
  const isNew = (row: EntityResponse) => !entity_names.includes(row.entity_name) && !rows.some(({ entity_id }) => entity_id === row.entity_id);
  return [...rows, ...others.filter(isNew)];
}

/** Search entities by columns. The name may be part of a translated one; these entities follow the others. */
export async function findEntitiesByColumns(filter: Record<string, ColumnFilter>, page_number: number, page_size: number): Promise<Page<EntityResponse>> {
  const names = await entityNames(filter.ENTITY_NAME?.values?.[0] ?? "");
  const find = (entity_filter: Record<string, ColumnFilter>, page_number: number) => request(searchEntitiesByColumns({ body: { entity_filter, page_number, page_size } }));
  const translated = (name: string) => ({ ENTITY_KEY: { operator: "CONTAINS", values: [KEY_PART] }, ...filter, ENTITY_NAME: { operator: "EQ", values: [name] } });
  const [page, ...others] = await Promise.all([find(filter, page_number), ...names.map((name) => find(translated(name), 1))]);
  const rows = await translateNames(others.flatMap(({ content }) => content));
  return appendRows({ ...page, content: await translateNames(page.content) }, rows.filter((row) => !names.includes(row.entity_name)));
}
