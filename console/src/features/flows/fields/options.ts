import { t } from "../../../i18n/index.svelte";
import { entities } from "../../../lib/entities.svelte";
import { enumNames } from "../../../lib/values";

/** Return the allowed values of an entity by name, or undefined if it is not an enumeration. */
export function optionsOf(key: string): Record<string, string> | undefined {
  const found = entities.get(key);
  if (found?.entity_value_type === "BOOLEAN") return { true: t("tsl.true"), false: t("tsl.false") };
  return enumNames(found?.entity_value_attribute ?? {}) ?? undefined;
}
