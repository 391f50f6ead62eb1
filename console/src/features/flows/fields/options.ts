import { t } from "../../../i18n/index.svelte";
import { entities } from "../../../lib/entities.svelte";
import { choices } from "../../../lib/values";

/** What the entity of a key may be, by name, where that is a few values. */
export function optionsOf(key: string): Record<string, string> | undefined {
  const found = entities.get(key);
  if (found?.entity_value_type === "BOOLEAN") return { true: t("tsl.true"), false: t("tsl.false") };
  return choices(found?.entity_value_attribute ?? {}) ?? undefined;
}
